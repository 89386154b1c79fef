"""Contains the service: webhooks, queue, workers, GitHub and the command line. It may import all other
packages.
"""
