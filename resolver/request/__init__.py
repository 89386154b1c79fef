"""What is asked for: by whom, with which words and options, and on which branch."""
