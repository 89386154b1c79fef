"""The dashboard: a website that lists runs, shows them live, and lets people stop and retry them.

People see the runs of the repositories that they may read on GitHub.
"""
