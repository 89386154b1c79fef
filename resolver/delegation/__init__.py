"""Tools that start other agents: investigators, micro agents and the browsing agent."""
