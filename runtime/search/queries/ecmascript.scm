(function_declaration name: (identifier) @name) @symbol
(generator_function_declaration name: (identifier) @name) @symbol
(method_definition name: (_) @name) @symbol
(variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression) (generator_function) (class)]) @symbol
(program (lexical_declaration (variable_declarator name: (identifier) @name) @symbol))
(program (variable_declaration (variable_declarator name: (identifier) @name) @symbol))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @symbol))
