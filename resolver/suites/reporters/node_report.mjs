// A reporter for node's own test runner: one line of JSON for each test, and at the end how many there were.
// Runs in the sandbox, under the node that the repository has (18.15 and later).

export default async function* report(events) {
  const above = [];
  const failedBelow = [];
  let tests = 0;
  for await (const { type, data } of events) {
    if (type === "test:start") {
      above.length = data.nesting;
      above[data.nesting] = data.name;
      failedBelow.length = data.nesting + 1;
      failedBelow[data.nesting] = false;
    } else if (type === "test:pass" || type === "test:fail") {
      const depth = data.nesting;
      const failed = type === "test:fail" && data.todo === undefined;
      const explained = failedBelow[depth] === true;
      if (failed) failedBelow.fill(true, 0, depth);
      const isSuite = data.details?.type === "suite" || data.details?.error?.failureType === "subtestsFailed";
      if (isSuite && (!failed || explained)) continue;
      const name = [...above.slice(0, depth), data.name];
      const file = data.file ?? "";
      const isFile = depth === 0 && (data.name === file || /^\/.*\.[cm]?[jt]sx?$/.test(data.name));
      if (isFile && !failed) continue;
      const skipped = data.skip !== undefined || data.todo !== undefined;
      const error = data.details?.error;
      const cause = error?.cause ?? error;
      tests += 1;
      yield JSON.stringify({
        file: isFile ? data.name : file,
        name: isFile ? "" : name.join(" > "),
        result: isFile ? "error" : failed ? "failed" : skipped ? "skipped" : "passed",
        outcome: data.todo === undefined ? null : "todo",
        is_unfinished: isFile && (Boolean(error?.signal) || error?.failureType === "testTimeoutFailure"),
        message: failed ? String(cause?.stack ?? cause ?? "").slice(-8000) : "",
      }) + "\n";
    }
  }
  yield `{"tests":${tests}}\n`;
}
