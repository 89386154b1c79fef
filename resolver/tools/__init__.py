"""The tools that a model can call, and the conversion of its calls into actions and results."""
