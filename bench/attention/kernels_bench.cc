// Every kernel of attention over one block of 64 rows of 128 channels that stays in L1: the cost of
// decode where memory is no limit. Bytes are those of the stored rows.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/attention/block_stage.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernels.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck {
namespace {

using optimized::kBlockTokens;

constexpr int64_t kDim = 128;
constexpr int64_t kStride = kDim + 16;  // with sums of queries by group

// A block of one format, and room for what the kernels take and give.
struct Block {  // NOLINT(clang-analyzer-optin.performance.Padding)
  Block(const std::string& text, bool fused, bool factored)
      : kernels(optimized::KernelsFor(fused)) {
    const KvFormat format = ParseKvFormat(WholeLine(text));
    optimized::RowCodec codec;
    codec.Start(format, DType::kFloat32, kDim);
    bytes = codec.bytes();
    std::mt19937 random(1);
    std::vector<float> x(static_cast<size_t>(kBlockTokens * kDim));
    for (float& value : x) value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    codes.resize(static_cast<size_t>(kBlockTokens * bytes.codes));
    scales.resize(static_cast<size_t>(kBlockTokens * bytes.scales));
    biases.resize(static_cast<size_t>(kBlockTokens * bytes.biases));
    codec.Encode(reinterpret_cast<const std::byte*>(x.data()), kDim * 4, kBlockTokens,
                 {codes.data(), scales.data(), biases.data(), bytes.codes, bytes.scales});
    stage.Start(format, kDim, {.factored = factored, .in_basis = optimized::RotatesRows(format)});
    for (int64_t i = 0; i < kBlockTokens; ++i) columns.push_back(i);
    Take();
  }
  void Take(optimized::BlockStage::As as = optimized::BlockStage::As::kStored) {
    const optimized::StoredHeads heads = {
        codes.data(), scales.data(), biases.data(), bytes.codes, 0, bytes.scales, 0};
    stage.Take(heads, 0, columns.data(), kBlockTokens, true, as, kernels);
  }
  const optimized::RowKernels& of() { return kernels.Of(stage.rows().kind); }

  optimized::AttentionKernels kernels;
  optimized::RowBytes bytes;
  std::vector<std::byte> codes, scales, biases;
  std::vector<int64_t> columns;
  optimized::BlockStage stage;
  alignas(64) float q[optimized::kQuad * kStride] = {};
  alignas(64) float out[optimized::kQuad * kDim] = {};
  alignas(64) float scores[optimized::kQuad * kBlockTokens] = {};
  alignas(64) float values[kBlockTokens * kDim] = {};
  float rescale[optimized::kQuad] = {};
};

enum class Part { kStage, kDot, kSum, kWiden, kTranspose, kTransposedDot, kSoftmax };

void RunPart(benchmark::State& state, const std::string& format, Part part, int width, bool fused,
             bool factored) {
  const auto block = std::make_unique<Block>(format, fused, factored);
  if (factored && !block->kernels.Factors())
    return state.SkipWithError("not on this instruction set");
  const size_t wide = width == 1 ? 0 : 1;
  if (part == Part::kTranspose || part == Part::kTransposedDot) {
    if (!block->kernels.CanTranspose()) return state.SkipWithError("not on this instruction set");
    block->Take(optimized::BlockStage::As::kTransposed);
  }
  optimized::SoftmaxStep step;
  float shift[optimized::kQuad] = {}, total[optimized::kQuad] = {};
  step.count = kBlockTokens;
  step.scores = block->scores;
  step.shift = shift;
  step.total = total;
  step.rescale = block->rescale;
  for ([[maybe_unused]] auto _ : state) {
    const optimized::BlockRows& rows = block->stage.rows();
    if (part == Part::kStage) block->Take();
    if (part == Part::kDot) {
      block->of().dot[wide](rows, {block->q, kStride, block->q, factored, block->q}, block->scores);
    }
    if (part == Part::kSum) {
      block->of().sum[wide](rows, block->scores, block->rescale, block->out, kDim);
    }
    if (part == Part::kTranspose) block->of().transpose(rows, block->values);
    if (part == Part::kTransposedDot) {
      block->of().transposed_dot(rows, {block->q, kStride, block->q, false, block->q},
                                 block->scores);
    }
    if (part == Part::kSoftmax) block->kernels.softmax[wide](step);
    if (part == Part::kWiden) block->of().widen(rows, block->values, kDim);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBlockTokens * block->bytes.Total());
}

// One format for each kind of row, in the order of the table, and one that is unpacked before.
const char* const kFormats[] = {"f32",
                                "f16",
                                "bf16",
                                "f8e4m3fn",
                                "f8e5m2",
                                "q8_0",
                                "q4_0",
                                "q4_1",
                                "q5_0",
                                "q5_1",
                                "affine:8:g64:f16",
                                "affine:4:g64:f16",
                                "fp8:e4m3fn:token:f32",
                                "fp8:e5m2:token:f32",
                                "int8:token:f32",
                                "turboquant:1:g64:f32",
                                "turboquant:2:g64:f32",
                                "turboquant:3:g64:f32",
                                "turboquant:4:g64:f32",
                                "turboquant:1.5:g128:hffffffff00000000ffffffff00000000:f32",
                                "turboquant:2.5:g128:hffffffff00000000ffffffff00000000:f32",
                                "turboquant:3.5:g128:hffffffff00000000ffffffff00000000:f32"};
static_assert(std::size(kFormats) == optimized::kPlainKinds, "a kind of row without a benchmark");

const bool kRegistered = [] {
  const auto add = [](const std::string& name, const std::string& format, Part part, int width,
                      bool fused, bool factored = false) {
    benchmark::RegisterBenchmark(
        (name + "/" + format + "/" + std::to_string(width) +
         (factored ? "/factored"
          : fused  ? ""
                   : "/portable"))
            .c_str(),
        [=](benchmark::State& state) { RunPart(state, format, part, width, fused, factored); });
  };
  const bool fixed = optimized::KernelsFor(true).IsFixedPoint();
  for (const bool fused : {true, false}) {
    for (const char* format : kFormats) {
      for (const int width : {1, static_cast<int>(optimized::kQuad)}) {
        add("dot", format, Part::kDot, width, fused);
        add("sum", format, Part::kSum, width, fused);
      }
      add("widen", format, Part::kWiden, 1, fused);
    }
  }
  for (const char* format : {"affine:8:g64:f16", "affine:8:g32:f16", "affine:4:g64:f16", "q8_0",
                             "q4_0", "q5_1", "iq4_nl"}) {
    if (optimized::FixedOperandOf(ParseKvFormat(WholeLine(format)))->in_blocks && !fixed) continue;
    for (const int width : {1, static_cast<int>(optimized::kQuad)}) {
      add("dot", format, Part::kDot, width, true, true);
      add("sum", format, Part::kSum, width, true, true);
    }
    add("widen", format, Part::kWiden, 1, true, true);
    add("transposed_dot", format, Part::kTransposedDot, static_cast<int>(optimized::kQuad), true,
        true);
    add("transpose", format, Part::kTranspose, 1, true, true);
    add("stage", format, Part::kStage, 1, true, true);
  }
  add("transposed_dot", "f32", Part::kTransposedDot, static_cast<int>(optimized::kQuad), true);
  add("transpose", "f32", Part::kTranspose, 1, true);
  for (const int width : {1, static_cast<int>(optimized::kQuad)}) {
    add("softmax", "f32", Part::kSoftmax, width, true);
  }
  for (const char* format : {"f16", "affine:4:g64:f16", "affine:3:g64:f16"}) {
    add("stage", format, Part::kStage, 1, true);
  }
  return true;
}();

}  // namespace
}  // namespace kvcheck
