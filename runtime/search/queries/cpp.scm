(class_specifier name: (_) @name body: (_)) @symbol
(namespace_definition name: (namespace_identifier) @name) @symbol
(alias_declaration name: (type_identifier) @name) @symbol
(function_definition declarator: (reference_declarator
  (function_declarator declarator: (identifier) @name))) @symbol
(function_definition declarator: (function_declarator declarator: (field_identifier) @name)) @symbol
(function_definition declarator: (pointer_declarator
  declarator: (function_declarator declarator: (field_identifier) @name))) @symbol
(function_definition declarator: (reference_declarator
  (function_declarator declarator: (field_identifier) @name))) @symbol
(function_definition declarator: (function_declarator declarator: [
  (qualified_identifier
    scope: [(namespace_identifier) (template_type)] @owner
    name: [(identifier) (destructor_name) (operator_name)] @name)
  (qualified_identifier name: (qualified_identifier
    scope: [(namespace_identifier) (template_type)] @owner
    name: [(identifier) (destructor_name) (operator_name)] @name))])) @symbol
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: [
  (qualified_identifier
    scope: [(namespace_identifier) (template_type)] @owner
    name: [(identifier) (destructor_name) (operator_name)] @name)
  (qualified_identifier name: (qualified_identifier
    scope: [(namespace_identifier) (template_type)] @owner
    name: [(identifier) (destructor_name) (operator_name)] @name))]))) @symbol
(function_definition declarator: (reference_declarator (function_declarator declarator: [
  (qualified_identifier
    scope: [(namespace_identifier) (template_type)] @owner
    name: [(identifier) (destructor_name) (operator_name)] @name)
  (qualified_identifier name: (qualified_identifier
    scope: [(namespace_identifier) (template_type)] @owner
    name: [(identifier) (destructor_name) (operator_name)] @name))]))) @symbol
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @symbol
