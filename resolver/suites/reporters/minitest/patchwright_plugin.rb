# A minitest plugin: writes one JSON line per test to $PATCHWRIGHT_REPORT, and a final line with their number.
# It runs in the sandbox with the repository's own Ruby.
require "json"

module Minitest
  class PatchwrightReporter < AbstractReporter
    def start
      @lines = []
    end

    def record(result)
      # Minitest::Result since 5.11, the test itself before.
      klass = result.respond_to?(:klass) ? result.klass : result.class.name
      file = result.respond_to?(:source_location) ? result.source_location.first : ""
      outcome = if result.skipped? then "skipped"
                elsif result.error? then "error"
                elsif result.passed? then "passed"
                else "failed"
                end
      said = result.failures.map(&:message).join("\n")
      said = said.encode("UTF-8", invalid: :replace, undef: :replace)[-8000..] || said
      @lines << JSON.generate(file: file, name: "#{klass}##{result.name}", result: outcome, message: said)
    end

    def report
      File.write(ENV["PATCHWRIGHT_REPORT"], (@lines + [%({"tests":#{@lines.size}})]).join("\n") + "\n")
    end
  end

  def self.plugin_patchwright_init(_options)
    reporter << PatchwrightReporter.new if ENV["PATCHWRIGHT_REPORT"]
  end
end
