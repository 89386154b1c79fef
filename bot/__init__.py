"""The outside: webhooks, queue, worker, forge and command line. Imports everything below."""
