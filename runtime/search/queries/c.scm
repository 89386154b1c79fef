(function_definition declarator: (function_declarator declarator: (identifier) @name)) @symbol
(function_definition declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @name))) @symbol
(function_definition declarator: (pointer_declarator declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @name)))) @symbol
(struct_specifier name: (type_identifier) @name body: (_)) @symbol
(union_specifier name: (type_identifier) @name body: (_)) @symbol
(enum_specifier name: (type_identifier) @name body: (_)) @symbol
(type_definition declarator: (type_identifier) @name) @symbol
(preproc_def name: (identifier) @name) @symbol
(preproc_function_def name: (identifier) @name) @symbol
