(function_declaration name: (identifier) @name) @symbol
(generator_function_declaration name: (identifier) @name) @symbol
(method_definition name: (_) @name) @symbol
(variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression) (generator_function) (class)]) @symbol
(program (lexical_declaration (variable_declarator name: (identifier) @name) @symbol))
(program (variable_declaration (variable_declarator name: (identifier) @name) @symbol))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @symbol))

(class_declaration name: (type_identifier) @name) @symbol
(abstract_class_declaration name: (type_identifier) @name) @symbol
(interface_declaration name: (type_identifier) @name) @symbol
(type_alias_declaration name: (type_identifier) @name) @symbol
(enum_declaration name: (identifier) @name) @symbol
(internal_module name: (_) @name) @symbol
(function_signature name: (identifier) @name) @symbol
(method_signature name: (_) @name) @symbol
(abstract_method_signature name: (_) @name) @symbol
(public_field_definition name: (_) @name) @symbol
