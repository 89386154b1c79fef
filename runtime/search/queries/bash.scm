(function_definition name: (word) @name) @symbol
