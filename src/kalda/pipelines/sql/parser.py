"""Parses Spark SQL's expressions, and queries that are a projection and a filter.

The parser knows Spark's grammar for the parts that it has, and refuses the rest with `UnsupportedSqlError`,
so that the planner leaves the query to Spark. A maintainer must not let it guess: what is parsed must mean
the same in Spark.
"""

import re
from decimal import Decimal
from typing import Final

import pyarrow as pa

from kalda.formats.ddl import parse_type
from kalda.formats.spec import FormatError
from kalda.pipelines.sql.nodes import (
    Call,
    Case,
    Cast,
    Column,
    Item,
    Literal,
    Node,
    Select,
    Star,
    UnsupportedSqlError,
)

TEXT_MAX: Final = 100_000
DEPTH_MAX: Final = 100
"""Parentheses deeper than this are a mistake, and Python's stack is finite."""

_TOKEN: Final = re.compile(
    r"\s*(?:--[^\n]*\n?\s*)*(?:"
    r"(?P<name>`(?:[^`]|``)+`)"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*')"
    r"|(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|[LlDdFfSsYy](?![A-Za-z0-9_]))?)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><=>|<>|!=|==|<=|>=|\|\||::|[-+*/%(),.=<>])"
    r")",
    re.DOTALL,
)
_RESERVED: Final = frozenset(
    [
        "select",
        "from",
        "where",
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "like",
        "ilike",
        "between",
        "case",
        "when",
        "then",
        "else",
        "end",
        "as",
        "cast",
        "try_cast",
        "true",
        "false",
        "group",
        "order",
        "having",
        "limit",
        "union",
        "join",
        "on",
        "distinct",
        "lateral",
        "window",
        "with",
        "over",
        "escape",
        "div",
        "interval",
        "date",
        "timestamp",
        "rlike",
        "regexp",
        "exists",
        "except",
        "intersect",
        "any",
        "some",
        "all",
        "filter",
    ]
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
_COMPARISONS: Final = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")


def parse_expression(text: str) -> Node:
    """Return a parsed expression.

    Raises:
        UnsupportedSqlError: It is malformed, or has a part that only Spark knows.
    """
    parser = _Parser(text)
    node = parser.expression()
    parser.expect_end()
    return node


def parse_select(text: str) -> Select:
    """Return a parsed step of a pipeline: ``select … [from input] [where …]`` or ``where …``.

    Raises:
        UnsupportedSqlError: It is malformed, or has a part that only Spark knows.
    """
    parser = _Parser(text)
    select = parser.select()
    parser.expect_end()
    return select


class _Parser:
    """A recursive descent over tokens; each method reads one level of precedence."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise UnsupportedSqlError(f"the SQL has {len(text)} characters; at most {TEXT_MAX} are read")
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._index = 0
        self._depth = 0
        position, end = 0, len(text.rstrip().rstrip(";").rstrip())
        while position < end:
            match = _TOKEN.match(text, position, end)
            if match is None or match.lastgroup is None:
                raise UnsupportedSqlError(
                    f"unexpected {text[position:end].lstrip()[:20]!r} in {self._shown()}"
                )
            self._tokens.append((match.lastgroup, match.group(match.lastgroup)))
            position = match.end()

    def select(self) -> Select:
        items: tuple[Star | Item, ...] = (Star(),)
        if self._word("select"):
            items = self._items()
            if self._word("from"):
                source = self._identifier()
                if source.lower() != "input":
                    raise self._unsupported(f"from {source}")
        elif not self._peek_word("where"):
            raise self._unsupported(self._current())
        where = self.expression() if self._word("where") else None
        return Select(items, where)

    def _items(self) -> tuple[Star | Item, ...]:
        items: list[Star | Item] = []
        while True:
            if self._sign("*"):
                items.append(Star(self._left_out()))
            else:
                items.append(self._item())
            if not self._sign(","):
                return tuple(items)

    def _left_out(self) -> tuple[str, ...]:
        if not (self._peek_word("except") and self._peek_sign("(", 1)):
            return ()
        self._index += 2
        names = [self._identifier()]
        while self._sign(","):
            names.append(self._identifier())
        self._expect_sign(")")
        return tuple(names)

    def _item(self) -> Item:
        node = self.expression()
        if self._word("as") or self._at_identifier():
            return Item(node, self._identifier())
        if isinstance(node, Column):
            return Item(node, node.path[-1])
        raise self._unsupported("a column that is computed and has no name (add: as name)")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UnsupportedSqlError(f"parentheses nest deeper than {DEPTH_MAX} in {self._shown()}")
        node = self._and()
        while self._word("or"):
            node = Call("or", (node, self._and()))
        self._depth -= 1
        return node

    def _and(self) -> Node:
        node = self._not()
        while self._word("and"):
            node = Call("and", (node, self._not()))
        return node

    def _not(self) -> Node:
        negations = 0
        while self._word("not"):
            negations += 1
        node = self._predicate()
        for _ in range(negations):
            node = Call("not", (node,))
        return node

    def _predicate(self) -> Node:
        node = self._additive()
        while True:
            sign = self._any_sign(_COMPARISONS)
            if sign is not None:
                node = Call({"==": "=", "!=": "<>"}.get(sign, sign), (node, self._additive()))
                continue
            if self._word("is"):
                negated = self._word("not")
                node = self._is(node)
            else:
                negated = self._peek_word("not") and self._peek_word(
                    "in", "like", "ilike", "between", ahead=1
                )
                if negated:
                    self._index += 1
                if self._word("in"):
                    node = self._in(node)
                elif self._word("between"):
                    low = self._additive()
                    self._expect_word("and")
                    node = Call("and", (Call(">=", (node, low)), Call("<=", (node, self._additive()))))
                elif self._word("like"):
                    node = Call("like", (node, self._additive()))
                elif self._word("ilike"):
                    node = Call("like", (Call("lower", (node,)), Call("lower", (self._additive(),))))
                else:
                    return node
            if negated:
                node = Call("not", (node,))

    def _is(self, node: Node) -> Node:
        if self._word("null"):
            return Call("isnull", (node,))
        if self._word("true"):
            return Call("<=>", (node, Literal(pa.scalar(True))))
        if self._word("false"):
            return Call("<=>", (node, Literal(pa.scalar(False))))
        raise self._unsupported(f"is {self._current()}")

    def _in(self, node: Node) -> Node:
        self._expect_sign("(")
        values = [self.expression()]
        while self._sign(","):
            values.append(self.expression())
        self._expect_sign(")")
        return Call("in", (node, *values))

    def _additive(self) -> Node:
        node = self._multiplicative()
        while (sign := self._any_sign(("+", "-", "||"))) is not None:
            node = Call("concat" if sign == "||" else sign, (node, self._multiplicative()))
        return node

    def _multiplicative(self) -> Node:
        node = self._unary()
        while True:
            sign = self._any_sign(("*", "/", "%"))
            if sign is None and self._word("div"):
                sign = "div"
            if sign is None:
                return node
            node = Call(sign, (node, self._unary()))

    def _unary(self) -> Node:
        minus = False
        while (sign := self._any_sign(("-", "+"))) is not None:
            minus ^= sign == "-"
        return self._postfix(minus)

    def _postfix(self, minus: bool) -> Node:
        kind, _ = self._token()
        if minus and kind == "number":
            node: Node = self._number("-" + self._take())
        else:
            node = self._primary()
        while self._sign("::"):
            node = Cast(node, self._type(), False)
        return Call("negate", (node,)) if minus and kind != "number" else node

    def _primary(self) -> Node:
        kind, token = self._token()
        word = token.lower()
        if kind == "number":
            return self._number(self._take())
        if kind == "text":
            return Literal(pa.scalar(self._string(), pa.string()))
        if self._sign("("):
            node = self.expression()
            self._expect_sign(")")
            return node
        if kind == "word":
            if word in ("true", "false"):
                self._index += 1
                return Literal(pa.scalar(word == "true"))
            if word == "null":
                self._index += 1
                return Literal(pa.scalar(None, pa.null()))
            if word == "case":
                self._index += 1
                return self._case()
            if word in ("date", "timestamp") and self._peek_kind("text", 1):
                self._index += 1
                kind_type = pa.date32() if word == "date" else pa.timestamp("us", tz="UTC")
                return Cast(Literal(pa.scalar(self._string(), pa.string())), kind_type, False)
            if word in ("cast", "try_cast") and self._peek_sign("(", 1):
                self._index += 2
                node = self.expression()
                self._expect_word("as")
                cast = Cast(node, self._type(), word == "try_cast")
                self._expect_sign(")")
                return cast
            if self._peek_sign("(", 1) and word not in _RESERVED - {"date", "timestamp"}:
                return self._call()
        if kind == "name" or (kind == "word" and word not in _RESERVED - {"date", "timestamp"}):
            path = [self._identifier()]
            while self._sign("."):
                path.append(self._identifier())
            return Column(tuple(path))
        raise self._unsupported(self._current())

    def _call(self) -> Node:
        name = self._take().lower()
        self._expect_sign("(")
        arguments: list[Node] = []
        if not self._sign(")"):
            while True:
                arguments.append(self.expression())
                if not self._sign(","):
                    break
            self._expect_sign(")")
        if self._peek_word("over", "filter"):
            raise self._unsupported(f"{name}(…) {self._current()}")
        return Call(name, tuple(arguments))

    def _case(self) -> Node:
        subject = None if self._peek_word("when") else self.expression()
        branches: list[tuple[Node, Node]] = []
        while self._word("when"):
            condition = self.expression()
            if subject is not None:
                condition = Call("=", (subject, condition))
            self._expect_word("then")
            branches.append((condition, self.expression()))
        otherwise = self.expression() if self._word("else") else None
        self._expect_word("end")
        if not branches:
            raise self._unsupported("case without when")
        return Case(tuple(branches), otherwise)

    def _number(self, text: str) -> Literal:
        match = re.fullmatch(r"(.*?)(BD|[LlDdFfSsYy])?", text)
        assert match is not None
        digits, suffix = match[1], (match[2] or "").upper()
        if suffix == "BD":
            raise self._unsupported(text)
        if suffix in ("D", "F"):
            return Literal(pa.scalar(float(digits), pa.float64() if suffix == "D" else pa.float32()))
        if not suffix and ("e" in digits or "E" in digits):
            return Literal(pa.scalar(float(digits), pa.float64()))
        try:
            if suffix:
                kinds = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
                return Literal(pa.scalar(int(digits), kinds[suffix]))
            if "." in digits:
                value = Decimal(digits)
                _, numerals, exponent = value.as_tuple()
                scale = -int(exponent)
                return Literal(pa.scalar(value, pa.decimal128(max(len(numerals), scale, 1), scale)))
            number = int(digits)
            return Literal(pa.scalar(number, pa.int32() if -(1 << 31) <= number < 1 << 31 else pa.int64()))
        except (pa.ArrowInvalid, ValueError, OverflowError) as error:
            raise self._unsupported(text) from error

    def _string(self) -> str:
        body = self._take()[1:-1]
        if "''" in body:
            raise self._unsupported("two quotes in a text (write \\')")

        def unescape(match: re.Match[str]) -> str:
            letter = match[1]
            if letter in "%_":  # kept for like, as Spark does
                return "\\" + letter
            if letter in "uUx" or letter.isdigit():
                if letter == "0":
                    return "\0"
                raise self._unsupported(f"the escape \\{letter} in a text")
            return _ESCAPES.get(letter, letter)

        return re.sub(r"\\(.)", unescape, body, flags=re.DOTALL)

    def _type(self) -> pa.DataType:
        text = self._take()
        if self._peek_sign("("):
            text += self._take()
            while not self._peek_sign(")"):
                text += self._take()
            text += self._take()
        try:
            return parse_type(text)
        except FormatError as error:
            raise UnsupportedSqlError(str(error)) from error

    def _identifier(self) -> str:
        kind, token = self._token()
        if kind == "name":
            self._index += 1
            return token[1:-1].replace("``", "`")
        if kind == "word" and (token.lower() not in _RESERVED or token.lower() in ("date", "timestamp")):
            self._index += 1
            return token
        raise self._unsupported(self._current())

    def _at_identifier(self) -> bool:
        kind, token = self._token()
        return kind == "name" or (kind == "word" and token.lower() not in _RESERVED)

    def expect_end(self) -> None:
        if self._index < len(self._tokens):
            raise self._unsupported(self._current())

    def _token(self, ahead: int = 0) -> tuple[str, str]:
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else ("end", "")

    def _take(self) -> str:
        kind, token = self._token()
        if kind == "end":
            raise self._unsupported(self._current())
        self._index += 1
        return token

    def _word(self, word: str) -> bool:
        if self._peek_word(word):
            self._index += 1
            return True
        return False

    def _peek_word(self, *words: str, ahead: int = 0) -> bool:
        kind, token = self._token(ahead)
        return kind == "word" and token.lower() in words

    def _peek_kind(self, kind: str, ahead: int) -> bool:
        return self._token(ahead)[0] == kind

    def _peek_sign(self, sign: str, ahead: int = 0) -> bool:
        return self._token(ahead) == ("sign", sign)

    def _sign(self, sign: str) -> bool:
        return self._any_sign((sign,)) is not None

    def _any_sign(self, signs: tuple[str, ...]) -> str | None:
        kind, token = self._token()
        if kind == "sign" and token in signs:
            self._index += 1
            return token
        return None

    def _expect_word(self, word: str) -> None:
        if not self._word(word):
            raise self._unsupported(f"{self._current()} where {word} is expected")

    def _expect_sign(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._unsupported(f"{self._current()} where {sign} is expected")

    def _current(self) -> str:
        kind, token = self._token()
        return "the end" if kind == "end" else repr(token)

    def _shown(self) -> str:
        return repr(self._text.strip()[:200])

    def _unsupported(self, part: str) -> UnsupportedSqlError:
        return UnsupportedSqlError(f"{part} is not evaluated by Kalda in {self._shown()}")
