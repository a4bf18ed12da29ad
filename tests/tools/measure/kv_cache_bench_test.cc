// A cache that is quantized when it is stored: its memory is counted, and never three copies.

#include "tools/measure/kv_cache_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reference/spec/error.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_text.h"
#include "tools/measure/format_choice.h"

namespace kvcheck {
namespace {

KvCacheQuestion SmallCache(const std::vector<std::string>& formats, DType dtype = DType::kFloat16) {
  KvCacheQuestion question;
  question.shape = {3, 4, 2, 128, dtype};
  question.seq_lens = {129};
  question.formats = ChooseFormats(formats, 128);
  question.rounds = 1;
  return question;
}

TEST(KvCacheBench, BytesAreThoseOfTheRows) {
  const std::vector<KvCacheFigures> figures =
      MeasureKvCache(SmallCache({"f16", "affine:8:g64:f16", "affine:4:g64:f32", "q8_0"}));
  ASSERT_EQ(figures.size(), 4);
  constexpr int64_t kRows = 3 * 2 * 2 * 129;  // layers, K and V, heads, tokens
  for (const KvCacheFigures& f : figures) {
    EXPECT_EQ(f.original_bytes, kRows * 256);
    EXPECT_EQ(f.layer_bytes, kRows / 3 * 256);
    EXPECT_EQ(f.errors.elements, kRows * 128);
  }
  EXPECT_EQ(figures[0].stored_bytes, kRows * 256);
  EXPECT_EQ(figures[1].stored_bytes, kRows * 136);
  EXPECT_EQ(figures[2].stored_bytes, kRows * 80);
  EXPECT_EQ(figures[3].stored_bytes, kRows * 136);
}

// What is reported of a run that is cut short.
TEST(KvCacheBench, TellsAfterEachRoundWhatWasMeasured) {
  KvCacheQuestion question = SmallCache({"f16", "q8_0"});
  question.rounds = 2;
  std::vector<std::vector<KvCacheFigures>> told;
  MeasureKvCache(question, {}, nullptr,
                 [&](std::vector<KvCacheFigures> figures) { told.push_back(std::move(figures)); });
  ASSERT_EQ(told.size(), 4U);
  ASSERT_EQ(told[0].size(), 1U);
  EXPECT_EQ(told[0][0].rounds, 1);
  EXPECT_GT(told[0][0].errors.elements, 0);
  ASSERT_EQ(told[2].size(), 2U);
  EXPECT_EQ(told[2][0].rounds, 2);
  EXPECT_EQ(told[2][1].rounds, 1);
  const std::string text = KvCacheText(question, told[2], true);
  EXPECT_EQ(text.find("INTERRUPTED, this is partial: 2 of 2 caches, 3 of 4 rounds of them\n"), 0U)
      << text;
}

// A token takes 72 bytes: of 64 tokens 64 * 64 of codes, 2 * 128 * 2 of scales and zeros; of a page
// of four 4 * 64 of codes, 4 * 8 of scales.
TEST(KvCacheBench, GroupsOfTokensAreStoredWhole) {
  KvCacheQuestion question = SmallCache({});
  question.seq_lens = {128, 192};
  question.formats = ChooseFormats({"channel:4:g64:f16", "nvfp4:swizzled:f32"}, 128,
                                   [](int64_t group) { return 64 % group == 0; });
  for (const KvCacheFigures& f : MeasureKvCache(question)) {
    const int64_t rows = 3 * 2 * 2 * f.seq_len;
    EXPECT_EQ(f.stored_bytes, rows * 72) << Print(f.format);
    EXPECT_EQ(f.errors.elements, rows * 128);
    EXPECT_GT(f.errors.Mean(), 0);
    EXPECT_LT(f.errors.Nmse(), 1) << Print(f.format);  // of rows of other tokens it is 2
  }
}

// Layer by layer: the peak is the original and one stored layer.
TEST(KvCacheBench, HoldsTheOriginalAndOneStoredLayerAtMost) {
  for (const KvCacheFigures& f : MeasureKvCache(SmallCache({}))) {
    const int64_t at_store = f.original_bytes + f.stored_bytes / 3;
    const int64_t at_fetch = f.stored_bytes + f.layer_bytes;
    EXPECT_EQ(f.held_peak_bytes, std::max(at_store, at_fetch)) << Print(f.format);
    EXPECT_LE(f.held_peak_bytes, f.original_bytes + f.stored_bytes + f.layer_bytes);
  }
}

// Not of sanitizers, which keep shadows of all memory.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(KvCacheBench, ProcessNeedsNoMoreThanOriginalQuantizedAndOneLayer) {
  KvCacheQuestion question = SmallCache({"affine:4:g64:f16"});
  question.shape.layers = 8;
  question.seq_lens = {8192};
  const KvCacheFigures f = MeasureKvCache(question)[0];
  if (!f.resident_peak_bytes) GTEST_SKIP() << "the system does not say what is resident";
  EXPECT_GE(*f.resident_peak_bytes, f.original_bytes / 2);  // it was seen at all
  EXPECT_LE(*f.resident_peak_bytes, f.original_bytes + f.stored_bytes + f.layer_bytes);
}
#endif

TEST(KvCacheBench, ErrorsAreThoseOfTheCodec) {
  const std::vector<KvCacheFigures> figures =
      MeasureKvCache(SmallCache({"f32", "f16", "affine:8:g64:f16", "affine:4:g64:f16"}));
  EXPECT_EQ(figures[0].errors.Largest(), 0);
  EXPECT_EQ(figures[1].errors.Largest(), 0);
  // Half of a step to a whole one: 255 and 15 steps of the range of 64 numbers of N(0, 1).
  EXPECT_GT(figures[2].errors.Mean(), 0.004);
  EXPECT_LT(figures[2].errors.Mean(), 0.006);
  EXPECT_GT(figures[3].errors.Mean(), 0.07);
  EXPECT_LT(figures[3].errors.Mean(), 0.09);
}

TEST(KvCacheBench, EveryTypeOfOriginalIsFetchedAsItself) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const std::string plain(ShortName(dtype));
    const std::vector<KvCacheFigures> figures =
        MeasureKvCache(SmallCache({plain, "affine:8:g64:f32", "affine:8:g64:bf16", "q8_0"}, dtype));
    EXPECT_EQ(figures[0].errors.Largest(), 0) << plain;
    for (const KvCacheFigures& f : figures) {
      EXPECT_EQ(f.errors.not_finite, 0) << plain << Print(f.format);
      EXPECT_LT(f.errors.Largest(), 0.25) << plain << Print(f.format);
    }
  }
}

TEST(KvCacheBench, JsonHasTheFieldsOfItsSchema) {
  KvCacheQuestion question = SmallCache({"q4_0"});
  question.seq_lens = {1, 33};
  const std::vector<KvCacheFigures> figures = MeasureKvCache(question);
  const auto json = nlohmann::json::parse(KvCacheJson(question, figures));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["command"], "bench kv-cache");
  EXPECT_EQ(json["kv_heads"], 2);
  for (const char* field : {"tool", "seed", "layers", "heads", "head_dim", "dtype", "rounds"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  ASSERT_EQ(json["caches"].size(), 2);
  EXPECT_EQ(json["caches"][1]["seq_len"], 33);
  for (const char* field :
       {"format", "kind", "bits_per_element", "compression_of_f32", "compression_of_16_bits",
        "original_bytes", "stored_bytes", "layer_bytes", "errors", "held_peak_bytes",
        "resident_peak_bytes", "quantize", "dequantize"}) {
    EXPECT_TRUE(json["caches"][0].contains(field)) << field;
  }
  EXPECT_TRUE(json["caches"][0]["quantize"].contains("ns_per_token_and_layer"));
  EXPECT_NE(KvCacheText(question, figures).find("largest over smallest of 1 to 33 tokens"),
            std::string::npos);
}

TEST(KvCacheBench, WhatMemoryDoesNotHoldIsRefused) {
  KvCacheQuestion question = SmallCache({"q4_0"});
  question.shape.layers = 10000;
  question.shape.kv_heads = 1000;
  question.seq_lens = {100000000};
  try {
    MeasureKvCache(question);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace kvcheck
