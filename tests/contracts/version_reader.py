"""An agent that imports neither the runtime nor the resolver."""

from patchwright import AgentState, CustomAgent, ToolRequest


class VersionReader(CustomAgent):
    """Runs one command, and answers with its result."""

    def step(self, state: AgentState) -> ToolRequest | str:
        if state.is_new_turn:
            return ToolRequest(tool="run_shell", arguments={"command": "cat VERSION"})
        return f"The file says: {state.last_output.splitlines()[0]}"
