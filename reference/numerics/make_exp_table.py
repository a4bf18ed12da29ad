#!/usr/bin/env python3
"""Writes exp_table-inl.h (to stdout): the constants of exp-inl.h, log-inl.h and tanh-inl.h.

Only the standard library is used: `decimal` with 150 digits, and float(), which rounds a Decimal
correctly. tests/reference/numerics/exp_test.cc checks every entry against the oracle.
"""
from decimal import Decimal, getcontext
from math import factorial

getcontext().prec = 150
TABLE_SIZE = 128
LN2 = Decimal(2).ln()


def pair(x):
    hi = float(x)
    return hi, float(x - Decimal(hi))


def truncated(x, bits):
    """x rounded to a significand of `bits` bits."""
    m, e = float(x).hex().split("p")
    scale = Decimal(2) ** (bits - 1 - int(e))
    return float((x * scale).to_integral_value() / scale)


def array(name, values, comment):
    print(f"// {comment}")
    print(f"static constexpr double {name}[{len(values)}] = {{")
    for i in range(0, len(values), 4):
        print("    " + " ".join(v.hex() + "," for v in values[i:i + 4]))
    print("};\n")


def scalar(name, value):
    print(f"static constexpr double {name} = {value.hex()};")


def main():
    print("""// Constants of the elementary functions, each as a pair whose sum is the value to 2^-107.
// Written by make_exp_table.py; do not edit. The arrays are static so that every translation unit
// has its own, whatever instruction set it is compiled for.

#ifndef REFERENCE_NUMERICS_EXP_TABLE_INL_H_
#define REFERENCE_NUMERICS_EXP_TABLE_INL_H_

// clang-format off
namespace kvcheck::inl {
""")
    powers = [pair(Decimal(2) ** (Decimal(j) / TABLE_SIZE)) for j in range(TABLE_SIZE)]
    array("kExp2Hi", [p[0] for p in powers], "2^(j/128), j = 0..127: high words.")
    array("kExp2Lo", [p[1] for p in powers], "2^(j/128), j = 0..127: low words.")
    factors = [pair(Decimal(1) / factorial(n)) for n in range(11)]
    array("kInverseFactorialHi", [f[0] for f in factors], "1/n!, n = 0..10: high words.")
    array("kInverseFactorialLo", [f[1] for f in factors], "1/n!, n = 0..10: low words.")
    odd = [pair(Decimal(1) / (2 * n + 1)) for n in range(21)]
    array("kInverseOddHi", [f[0] for f in odd], "1/(2n+1), n = 0..20: high words.")
    array("kInverseOddLo", [f[1] for f in odd], "1/(2n+1), n = 0..20: low words.")
    step = LN2 / TABLE_SIZE
    step1 = truncated(step, 35)
    step2 = truncated(step - Decimal(step1), 35)
    step3 = float(step - Decimal(step1) - Decimal(step2))
    print("// ln2 / 128 = kStep1 + kStep2 + kStep3. The first two have 35 bits, so that their product")
    print("// with an integer below 2^18 is exact.")
    scalar("kInverseStep", float(1 / step))
    scalar("kStep1", step1)
    scalar("kStep2", step2)
    scalar("kStep3", step3)
    # The two-part split of the double exp: its second part has all 53 bits.
    scalar("kStep2Full", float(step - Decimal(step1)))
    ln2_1 = truncated(LN2, 42)
    rest = pair(LN2 - Decimal(ln2_1))
    print("\n// ln2 = kLn2Head + kLn2TailHi + kLn2TailLo. The head has 42 bits: exact times an integer")
    print("// below 2^11.")
    scalar("kLn2Head", ln2_1)
    scalar("kLn2TailHi", rest[0])
    scalar("kLn2TailLo", rest[1])
    print("""
}  // namespace kvcheck::inl
// clang-format on

#endif  // REFERENCE_NUMERICS_EXP_TABLE_INL_H_""")


if __name__ == "__main__":
    main()
