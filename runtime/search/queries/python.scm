(class_definition name: (identifier) @name) @symbol
(function_definition name: (identifier) @name) @symbol
(module (expression_statement (assignment left: (identifier) @name) @symbol))
(class_definition body: (block (expression_statement (assignment left: (identifier) @name) @symbol)))
(type_alias_statement left: (type (identifier) @name)) @symbol
