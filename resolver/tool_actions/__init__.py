"""The actions that the sandbox does not execute itself. A class defines a tool, and what people see of its calls."""
