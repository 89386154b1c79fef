// A reporter for all versions of mocha: writes the tests in the form of mocha's own reporter `json`, which older
// versions can only print, and prints the failures. If the process ends before the last test, `unfinished` is the test
// that ran then. Runs in the sandbox, under the node that the repository has.
const fs = require("fs");

module.exports = function PatchwrightReporter(runner) {
  const report = { tests: [], passes: [], failures: [], pending: [], unfinished: null };
  let running = null;
  let isWritten = false;
  const describe = (test, error) => ({
    fullTitle: test.fullTitle(),
    file: test.file || (test.parent && test.parent.file) || undefined,
    err: error ? { message: String(error.message || error), stack: String(error.stack || error) } : {},
    currentRetry: typeof test.currentRetry === "function" ? test.currentRetry() || 0 : 0,
  });
  const write = () => {
    if (!isWritten) fs.writeFileSync(process.env.PATCHWRIGHT_REPORT, JSON.stringify(report));
    isWritten = true;
  };
  runner.on("test", (test) => {
    running = test;
  });
  runner.on("test end", (test) => report.tests.push(describe(test)));
  runner.on("pass", (test) => report.passes.push(describe(test)));
  runner.on("pending", (test) => report.pending.push(describe(test)));
  runner.on("fail", (test, error) => {
    report.failures.push(describe(test, error));
    console.log("FAILED " + test.fullTitle() + "\n" + String((error && error.stack) || error) + "\n");
  });
  runner.on("end", () => {
    const { passes, failures, pending } = report;
    write();
    console.log(`${passes.length} passing, ${failures.length} failing, ${pending.length} pending`);
  });
  process.on("exit", () => {
    if (!running) return; // no test ran, for example because a file could not be loaded
    report.unfinished = describe(running);
    write();
  });
};
