"""What the model may call, and how a call becomes an action and an answer."""
