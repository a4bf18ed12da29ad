// A block of stored vectors for the tests of kernels.

#ifndef TESTS_OPTIMIZED_ATTENTION_STORED_BLOCK_H_
#define TESTS_OPTIMIZED_ATTENTION_STORED_BLOCK_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "optimized/attention/block_stage.h"
#include "optimized/attention/kernels.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck {

// A block of one format with the values that it stands for: codes by two roundings, rotated rows in
// the basis in which they are stored.
struct StoredBlock {
  StoredBlock(const std::string& text, int64_t dim, int64_t count, uint32_t seed,
              bool factored = false)
      : format(ParseKvFormat(WholeLine(text))), dim(dim), count(count) {
    optimized::RowCodec codec;
    codec.Start(format, DType::kFloat32, dim);
    const optimized::RowBytes bytes = codec.bytes();
    std::mt19937 random(seed);
    std::vector<float> x(static_cast<size_t>(count * dim));
    for (float& value : x)
      value = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31);
    codes.resize(static_cast<size_t>(count * bytes.codes));
    scales.resize(static_cast<size_t>(count * bytes.scales));
    const bool in_basis = optimized::RotatesRows(format);
    biases.resize(static_cast<size_t>(count * bytes.biases));
    codec.Encode(reinterpret_cast<const std::byte*>(x.data()), dim * 4, count,
                 {codes.data(), scales.data(), biases.data(), bytes.codes, bytes.scales});
    values.resize(x.size());
    const optimized::StoredRowsView rows = {codes.data(), scales.data(), biases.data(), bytes.codes,
                                            bytes.scales};
    if (in_basis) {
      codec.DecodeInBasis(rows, count, values.data());
    } else {
      codec.Decode(rows, count, values.data());
    }
    stage.Start(format, dim, {.factored = factored, .in_basis = in_basis});
    heads = {codes.data(), scales.data(), biases.data(), bytes.codes, 0, bytes.scales, 0};
    for (int64_t i = 0; i < count; ++i) columns.push_back(i);
  }
  optimized::BlockRows& Take(const optimized::AttentionKernels& kernels, bool widen) {
    using As = optimized::BlockStage::As;
    stage.Take(heads, 0, columns.data(), count, true, widen ? As::kFloats : As::kStored, kernels);
    return stage.rows();
  }

  // The codes of an affine format, one by one. Shapes: (count, dim).
  std::vector<int> Codes() const {
    const auto bits = static_cast<size_t>(std::get<AffineFormat>(format).bits);
    std::vector<int> numbers(static_cast<size_t>(dim * count));
    for (size_t i = 0; i < numbers.size(); ++i) {
      for (size_t b = 0; b < bits; ++b) {
        const size_t at = i * bits + b;
        numbers[i] |= (static_cast<int>(codes[at / 8]) >> at % 8 & 1) << b;
      }
    }
    return numbers;
  }

  // Scales or biases of an affine format with scales in f32. Shapes: (count, groups).
  static std::vector<float> Floats(const std::vector<std::byte>& stored) {
    std::vector<float> numbers(stored.size() / sizeof(float));
    std::memcpy(numbers.data(), stored.data(), stored.size());
    return numbers;
  }

  KvFormat format;
  int64_t dim, count;
  std::vector<std::byte> codes, scales, biases;
  std::vector<float> values;
  optimized::BlockStage stage;
  optimized::StoredHeads heads;
  std::vector<int64_t> columns;
};

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ATTENTION_STORED_BLOCK_H_
