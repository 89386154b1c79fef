"""A short source in each parsed language, with its expected outline."""

SOURCES: dict[str, tuple[str, list[str]]] = {
    "python": (
        """\
LIMIT = 3


@frozen
class Cart:
    "Items."

    kind: str = "cart"

    async def total(self) -> int:
        def inner(): ...
        return 1


def main(): ...
type Price = int
""",
        [
            "1: LIMIT = 3",
            "5-12: class Cart:",
            '8:   kind: str = "cart"',
            "10-12:   async def total(self) -> int:",
            "11:     def inner(): ...",
            "15: def main(): ...",
            "16: type Price = int",
        ],
    ),
    "javascript": (
        """\
export const LIMIT = 3;
class Cart {
  total() { return 1; }
  half = () => 2;
  kind = "cart";
}
export function main() {
  const inner = () => 3;
}
const arrow = async (x) => x;
""",
        [
            "1: export const LIMIT = 3;",
            "2-6: class Cart {",
            "3:   total() { return 1; }",
            "4:   half = () => 2;",
            '5:   kind = "cart";',
            "7-9: export function main() {",
            "8:   const inner = () => 3;",
            "10: const arrow = async (x) => x;",
        ],
    ),
    "typescript": (
        """\
export abstract class Cart<T> {
  readonly kind = "cart";
  abstract half(): number;
  private total(): number {
    return 1;
  }
}
interface Shop { sell(): void }
type Price = number;
enum Kind { A, B }
namespace Deep { export function main() {} }
""",
        [
            "1-7: export abstract class Cart<T> {",
            '2:   readonly kind = "cart";',
            "3:   abstract half(): number;",
            "4-6:   private total(): number {",
            "8: interface Shop { sell(): void }",
            "9: type Price = number;",
            "10: enum Kind { A, B }",
            "11: namespace Deep { export function main() {} }",
        ],
    ),
    "tsx": (
        """\
export function App(): JSX.Element {
  return <div />;
}
""",
        [
            "1-3: export function App(): JSX.Element {",
        ],
    ),
    "go": (
        """\
package shop

type Cart struct {
	n int
}

func (c *Cart) Total() int {
	return 1
}

func (p Pair[K, V]) First() K { return p.k }

func main() {}

const limit = 3

var (
	one = 1
)
""",
        [
            "3-5: type Cart struct {",
            "7-9: func (c *Cart) Total() int {",
            "11: func (p Pair[K, V]) First() K { return p.k }",
            "13: func main() {}",
            "15: const limit = 3",
            "18: one = 1",
        ],
    ),
    "rust": (
        """\
pub struct Cart;

impl Cart {
    pub fn total(&self) -> u32 {
        1
    }
}

trait Shop { fn sell(&self); }
enum Kind { A, B }
macro_rules! twice { ($x:expr) => { $x * 2 }; }
mod deep { pub fn main() {} }
""",
        [
            "1: pub struct Cart;",
            "3-7: impl Cart {",
            "4-6:   pub fn total(&self) -> u32 {",
            "9: trait Shop { fn sell(&self); }",
            "10: enum Kind { A, B }",
            "11: macro_rules! twice { ($x:expr) => { $x * 2 }; }",
            "12: mod deep { pub fn main() {} }",
        ],
    ),
    "java": (
        """\
public class Cart {
    static final int LIMIT = 3;
    Cart() {}

    int total() {
        return 1;
    }
}

interface Shop { void sell(); }
enum Kind { A, B }
record Pair(int a, int b) {}
""",
        [
            "1-8: public class Cart {",
            "2:   static final int LIMIT = 3;",
            "3:   Cart() {}",
            "5-7:   int total() {",
            "10: interface Shop { void sell(); }",
            "11: enum Kind { A, B }",
            "12: record Pair(int a, int b) {}",
        ],
    ),
    "c": (
        """\
#define LIMIT 3
struct cart {
    int n;
};

static int *total(void)
{
    return 0;
}

typedef struct { int x; } pair;
""",
        [
            "1: #define LIMIT 3",
            "2-4: struct cart {",
            "6-9: static int *total(void)",
            "11: typedef struct { int x; } pair;",
        ],
    ),
    "cpp": (
        """\
namespace shop {
class Cart {
 public:
  int total();
  int half() { return 1; }
};
}

int shop::Cart::total() {
  return 1;
}

Cart::~Cart() {}
int& main() { static int i; return i; }
""",
        [
            "1-7: namespace shop {",
            "2-6:   class Cart {",
            "4:     int total();",
            "5:     int half() { return 1; }",
            "9-11: int shop::Cart::total() {",
            "13: Cart::~Cart() {}",
            "14: int& main() { static int i; return i; }",
        ],
    ),
    "ruby": (
        """\
module Shop
  class Cart
    LIMIT = 3

    def total
      1
    end

    def self.make; end
  end
end
""",
        [
            "1-11: module Shop",
            "2-10:   class Cart",
            "3:     LIMIT = 3",
            "5-7:     def total",
            "9:     def self.make; end",
        ],
    ),
    "php": (
        """\
<?php
class Cart {
    public function total() {
        return 1;
    }
}
interface Shop {}
trait Sells {}
function main() {}
""",
        [
            "2-6: class Cart {",
            "3-5:   public function total() {",
            "7: interface Shop {}",
            "8: trait Sells {}",
            "9: function main() {}",
        ],
    ),
    "bash": (
        """\
total() {
  echo 1
}
function main { :; }
""",
        [
            "1-3: total() {",
            "4: function main { :; }",
        ],
    ),
}
