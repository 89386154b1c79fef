(class name: [(constant) @name (scope_resolution name: (constant) @name)]) @symbol
(module name: [(constant) @name (scope_resolution name: (constant) @name)]) @symbol
(method name: (_) @name) @symbol
(singleton_method name: (_) @name) @symbol
(assignment left: (constant) @name) @symbol
