// Tells the test's server what this page saw, in order.
const told = [];
let telling = Promise.resolve();

function saw(...words) {
  told.push(words.join(" "));
  telling = telling.then(() => fetch("/saw", { method: "POST", body: words.join(" ") }));
}

function watch(id, types, detail = () => "") {
  for (const type of types.split(" "))
    document.getElementById(id).addEventListener(type, event => saw(type, id, detail(event)), true);
}

const held = event => ["alt", "ctrl", "meta", "shift"].filter(key => event[key + "Key"]).join("+");
const point = event => `${event.button} ${event.clientX},${event.clientY}`;
