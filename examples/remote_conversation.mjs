// An agent works on a server, and pauses after its first step until you press Enter. The server may be restarted at any
// time. Needs Node.js 22: node remote_conversation.mjs SERVER MESSAGE, with the key in API_KEY

const [server, message] = process.argv.slice(2);
const { API_KEY, MODEL, BASE_URL, OPENAI_API_KEY } = process.env;
const headers = { Authorization: `Bearer ${API_KEY}`, "Content-Type": "application/json" };

async function request(method, path, body) {
  const response = await fetch(server + path, { method, headers, body: JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

const llm = { kind: "LLM", model: MODEL, api_key: OPENAI_API_KEY, base_url: BASE_URL };
const agent = { kind: "Agent", llm, tools: ["run_shell", "create_file", "replace_text", "finish"] };
const workspace = await request("POST", "/workspaces", {});
const { id } = await request("POST", "/conversations", { agent, workspace: workspace.id });
const conversation = `/conversations/${id}`;
await request("POST", `${conversation}/messages`, { text: message });
await request("POST", `${conversation}/run`);

let count = 0;
let wasPaused = false;
let timer;

function follow() {
  const address = `${server.replace("http", "ws")}${conversation}/events?after=${count}`;
  const socket = new WebSocket(address, { headers });
  socket.onmessage = ({ data }) => {
    count += 1;
    show(JSON.parse(data).event);
  };
  // Node.js 20 reports an attempt to connect that fails only as an error.
  socket.onclose = socket.onerror = () => {
    clearTimeout(timer);
    timer = setTimeout(follow, 1000);
  };
}

async function show(event) {
  if (event.kind === "model_reply") {
    event.calls.forEach(({ action }) => console.log(action.kind));
    if (!wasPaused) await request("POST", `${conversation}/pause`);
    wasPaused = true;
  } else if (event.kind === "paused") {
    console.log("Paused. Press Enter.");
    process.stdin.once("data", () => request("POST", `${conversation}/run`));
  } else if (event.kind === "agent_stopped") {
    const { answer } = await request("GET", conversation);
    console.log(`${event.reason}: ${answer || event.detail}`);
    process.exit();
  }
}

follow();
