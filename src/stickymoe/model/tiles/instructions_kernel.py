"""AMX tiles and vectors of 16 floats as functions for numba's compiler, which has no words of its own for them.

A tile is 16 rows of 64 bytes, in one of eight registers that only these functions touch. Addresses are integers,
strides are in bytes. The exponential is 2**k * 2**f with f in [-1/2, 1/2], a polynomial of relative error 3e-6, where
bfloat16 keeps 4e-3.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

SIDE = 16  # rows of a tile, and floats in a row
ROWS_AT_ONCE = 16  # that `largest` reads
LOG2_E = math.log2(math.e)
# 2**f on [-1/2, 1/2] by falling power, fitted at Chebyshev's points for the relative error, 1 at 0
POWERS = (0.0096003953, 0.055916894, 0.24023719, 0.69312197, 1.0)
LOWEST = -126.0  # the exponent of the smallest normal float; what lies below counts as that
ROUNDER = 1.5 * 2**23  # added to a float and taken away again, it leaves the nearest integer

BYTE, LONG = ir.IntType(8), ir.IntType(64)
POINTER = BYTE.as_pointer()
FLOATS, INTS = ir.VectorType(ir.FloatType(), SIDE), ir.VectorType(ir.IntType(32), SIDE)


def instruction(emit: Callable[..., None]) -> Any:
    """Make what `emit(builder, *integers)` writes callable from compiled functions."""

    def typed(typing_context: Any, *integers: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit(builder, *arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * len(integers)), code

    typed.__name__ = emit.__name__
    typed.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]  # numba counts the parameters
    return intrinsic(typed)


def _call(builder: Any, name: str, returns: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(returns, [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def _tile(builder: Any, name: str, *registers: int, at: tuple[Any, ...] = ()) -> None:
    numbers: list[Any] = [ir.Constant(BYTE, register) for register in registers]
    _call(builder, f"llvm.x86.{name}", ir.VoidType(), numbers + list(at))


def _place(builder: Any, address: Any, offset: int, rows: int = 0, stride: Any = None) -> Any:
    """Return the address `rows` rows and `offset` bytes further, as a pointer."""
    if rows:
        address = builder.add(address, builder.mul(stride, LONG(rows)))
    return builder.inttoptr(builder.add(address, LONG(offset)), POINTER)


@instruction
def save_tiles(builder: Any, to: Any) -> None:
    """Write the configuration of the tiles, 64 bytes."""
    _tile(builder, "sttilecfg", at=(_place(builder, to, 0),))


@instruction
def configure_tiles(builder: Any, address: Any) -> None:
    """Take the configuration at `address`, which empties all tiles."""
    _tile(builder, "ldtilecfg", at=(_place(builder, address, 0),))


@instruction
def clear_sum(builder: Any) -> None:
    """Set a sum, 32 rows of 32 floats in four tiles, to 0."""
    for register in range(4):
        _tile(builder, "tilezero", register)


def _move_sum(builder: Any, name: str, address: Any, stride: Any) -> None:
    for register in range(4):
        place = _place(builder, address, 64 * (register % 2), SIDE * (register // 2), stride)
        _tile(builder, name, register, at=(place, stride))


@instruction
def load_sum(builder: Any, address: Any, stride: Any) -> None:
    """Read the sum from memory."""
    _move_sum(builder, "tileloadd64", address, stride)


@instruction
def store_sum(builder: Any, address: Any, stride: Any) -> None:
    """Write the sum to memory."""
    _move_sum(builder, "tilestored64", address, stride)


@instruction
def add_product(builder: Any, left: Any, left_stride: Any, right: Any, right_stride: Any) -> None:
    """Add the product of 32 rows of 32 bfloat16 with 16 rows of 32 pairs of bfloat16 to the sum."""
    for register, address, stride, rows, offset in (
        (4, left, left_stride, 0, 0),
        (6, right, right_stride, 0, 0),
        (7, right, right_stride, 0, 64),
        (5, left, left_stride, SIDE, 0),
    ):
        _tile(builder, "tileloadd64", register, at=(_place(builder, address, offset, rows, stride), stride))
    for register in range(4):
        _tile(builder, "tdpbf16ps", register, 4 + register // 2, 6 + register % 2)


def _read(builder: Any, kind: Any, address: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def _write(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _all(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * SIDE)


def _larger(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


def _exponential(builder: Any, logits: Any, reference: Any) -> Any:
    """Return the bits of exp(logits - reference); NaN stays NaN."""
    power = builder.fmul(builder.fsub(logits, reference), _all(FLOATS, LOG2_E))
    low = _all(FLOATS, LOWEST)
    power = builder.select(builder.fcmp_ordered("<", power, low), low, power)
    whole = builder.fadd(power, _all(FLOATS, ROUNDER))
    part = builder.fsub(power, builder.fsub(whole, _all(FLOATS, ROUNDER)))
    value = _all(FLOATS, POWERS[0])
    for coefficient in POWERS[1:]:
        value = _call(builder, "llvm.fma.v16f32", FLOATS, [value, part, _all(FLOATS, coefficient)])
    return builder.add(builder.bitcast(value, INTS), builder.shl(builder.bitcast(whole, INTS), _all(INTS, 23)))


@instruction
def largest(builder: Any, rows: Any, stride: Any, result: Any) -> None:
    """Raise 16 results to the largest of `ROWS_AT_ONCE` rows."""
    places = [builder.add(rows, builder.mul(stride, LONG(row))) for row in range(ROWS_AT_ONCE)]
    values = [_read(builder, FLOATS, place) for place in places]
    while len(values) > 1:
        values = [_larger(builder, *pair) for pair in zip(values[::2], values[1::2], strict=True)]
    _write(builder, _larger(builder, values[0], _read(builder, FLOATS, result)), result)


@instruction
def add_exponentials(builder: Any, rows: Any, stride: Any, reference: Any, sums: Any, to: Any) -> None:
    """Write exp(row - reference) of two rows of 16 floats as pairs of bfloat16, and add them to 16 sums."""
    references = _read(builder, FLOATS, reference)
    first, second = (
        _exponential(builder, _read(builder, FLOATS, row), references) for row in (rows, builder.add(rows, stride))
    )
    both = builder.fadd(builder.bitcast(first, FLOATS), builder.bitcast(second, FLOATS))
    _write(builder, builder.fadd(_read(builder, FLOATS, sums), both), sums)
    _write(builder, _pairs(builder, first, second), to)


@instruction
def write_exponentials(builder: Any, row: Any, references: Any, to: Any) -> None:
    """Write exp(row - references) of a row of 32 floats as pairs of bfloat16, of floats 16 apart."""
    first, second = (
        _exponential(
            builder,
            _read(builder, FLOATS, builder.add(row, offset)),
            _read(builder, FLOATS, builder.add(references, offset)),
        )
        for offset in (LONG(0), LONG(64))
    )
    _write(builder, _pairs(builder, first, second), to)


def _pairs(builder: Any, first: Any, second: Any) -> Any:
    """Round the floats of these bits to bfloat16, the first of each pair below the second."""
    half = _all(INTS, 1 << 15)
    low = builder.lshr(builder.add(first, half), _all(INTS, 16))
    high = builder.and_(builder.add(second, half), _all(INTS, -1 << 16))
    return builder.or_(low, high)


def _rounded(typing_context: Any, value: Any) -> Any:
    """Return the bits of the nearest bfloat16, ties to even, as torch rounds; any NaN becomes the usual one."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (number,) = arguments
        word = ir.IntType(32)
        bits = builder.bitcast(number, word)
        odd = builder.and_(builder.lshr(bits, word(16)), word(1))
        near = builder.lshr(builder.add(bits, builder.add(odd, word(0x7FFF))), word(16))
        usual = builder.select(builder.fcmp_unordered("uno", number, number), word(0x7FC0), near)
        return builder.trunc(usual, ir.IntType(16))

    return types.uint16(types.float32), code


def _widened(typing_context: Any, bits: Any) -> Any:
    """Return the float that the bits of a bfloat16 stand for."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.zext(arguments[0], word), word(16)), ir.FloatType())

    return types.float32(types.uint16), code


def _pointer(typing_context: Any, address: Any) -> Any:
    """Return an address as what `carray` takes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], POINTER)

    return types.voidptr(types.int64), code


def _next_number(typing_context: Any, counter: Any) -> Any:
    """Return the number at an address and count it up, whatever other threads do."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], LONG.as_pointer())
        return builder.atomic_rmw("add", place, LONG(1), "monotonic")

    return types.int64(types.int64), code


rounded: Any = intrinsic(_rounded)
widened: Any = intrinsic(_widened)
pointer: Any = intrinsic(_pointer)
next_number: Any = intrinsic(_next_number)
