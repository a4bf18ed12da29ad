// What tests of ggml's blocks share: the witness of formats.md, section C, bytes as text, and
// checks that hold of every family.

#ifndef TESTS_REFERENCE_FORMATS_GGML_SAMPLE_H_
#define TESTS_REFERENCE_FORMATS_GGML_SAMPLE_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {

// Of a row, which zeros fill up to a block.
inline std::string EncodedHex(const KvFormat& format, std::vector<double> row) {
  if (row.size() < 32) row.resize(32, 0.0);
  return Hex(EncodeRows(format, Profile(), RowOf(DType::kFloat32, row)).at("blocks"));
}

inline std::vector<double> DecodedBlocks(const KvFormat& format, const Tensor& blocks) {
  const TensorMap stored = {{"blocks", blocks}};
  return DecodeToRowType(format, Profile(), CodecRows(format, stored), 0, blocks.shape.RowCount());
}

// Bits of the first eight values of the witness, stored and read.
inline std::vector<uint64_t> DecodedWitness(const KvFormat& format) {
  const TensorMap stored = EncodeRows(format, Profile(), RowOf(DType::kFloat32, WitnessRow()));
  std::vector<double> values = DecodedBlocks(format, stored.at("blocks"));
  values.resize(8);
  return BitsOf(DType::kFloat32, values);
}

// Over all regimes of data and types of rows: no violation, and the bound is reached.
inline void ExpectBoundInEveryRegime(const KvFormat& format) {
  BoundCheck all;
  for (const std::string_view regime : RowRegimes()) {
    for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      const BoundCheck check =
          CheckBound(format, Profile(), GenerateRows(regime, 9, type, 16, 320));
      EXPECT_EQ(check.violations, 0) << Print(format) << " " << regime << " " << Name(type);
      all.Add(check);
    }
  }
  EXPECT_GT(all.largest_ratio, 0.99) << Print(format);
  EXPECT_LE(all.largest_ratio, 1) << Print(format);
}

// A block of magnitudes up to 2^exponent, of which the largest is at channel 7.
inline BoundCheck CheckBoundAt(const KvFormat& format, int exponent, double largest) {
  std::vector<double> row(32);
  for (size_t i = 0; i < 32; ++i) {
    const double part = i == 7 ? largest : std::fmod(0.37 * static_cast<double>(i), 1.9) - 0.95;
    row[i] = std::ldexp(part, exponent);
  }
  return CheckBound(format, Profile(), RowOf(DType::kFloat32, row));
}

// Every other code lies beyond the bound wherever that is claimed. meanings: of codes, as
// CodesAsNumbers has them. Returns the share of elements of which it is claimed.
inline double ExpectWrongCodesShow(const KvFormat& format, const std::vector<int>& meanings) {
  int64_t claimed = 0, elements = 0;
  for (const char* regime : {"gauss", "offset", "all_negative", "tiny", "constant", "sparse"}) {
    const Tensor x = GenerateRows(regime, 2, DType::kFloat32, 1, 320);
    const std::vector<double> values = ValuesOf(x);
    const RowBound bound = RoundTripBound(format, Profile(), DecodeRounding::kExact, x.dtype,
                                          std::optional(DType::kFloat64), values);
    const TensorMap stored = EncodeRows(format, Profile(), x);
    const std::vector<double> numbers = CodesAsNumbers(format, CodecRows(format, stored), 0, 1);
    for (size_t i = 0; i < 320; ++i) {
      ++elements;
      if (bound.overflows[i] || !(bound.total[i] < bound.wrong_code[i])) continue;
      ++claimed;
      const double scale = numbers[320 + i / 32], minimum = numbers[330 + i / 32];
      for (const int code : meanings) {
        const double error = std::fabs(code * scale + minimum - values[i]);
        if (code == static_cast<int>(numbers[i])) {
          EXPECT_LE(error, bound.total[i]) << regime << " " << i;
        } else {
          EXPECT_GT(error, bound.total[i]) << regime << " " << i << " " << code;
        }
      }
    }
  }
  return static_cast<double>(claimed) / static_cast<double>(elements);
}

// What the judge of `encode` makes of bytes of a row of blocks that differ.
class EncodeJudge {
 public:
  EncodeJudge(const KvFormat& format, const std::vector<double>& row)
      : case_{CodecDirection::kEncode,          format,          DType::kFloat32, 1,
              static_cast<int64_t>(row.size()), {"gauss", 1, ""}},
        inputs_{{"x", RowOf(DType::kFloat32, row)}},
        source_(MakeCodecSource(case_, Profile(), inputs_)),
        blocks_(EncodeRows(format, Profile(), inputs_.at("x"))) {}

  Tensor& blocks() { return blocks_.at("blocks"); }
  Outcome Judged() const { return Judge(*source_, MemorySink(blocks_)).outcome; }
  // Whether it fails with this byte changed.
  bool Fails(size_t byte, std::byte bits) {
    blocks().bytes[byte] ^= bits;
    const Outcome outcome = Judged();
    blocks().bytes[byte] ^= bits;
    return outcome == Outcome::kFail;
  }

 private:
  CodecCase case_;
  TensorMap inputs_;
  std::unique_ptr<ExpectedSource> source_;
  TensorMap blocks_;
};

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_FORMATS_GGML_SAMPLE_H_
