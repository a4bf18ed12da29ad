#include "golden/prompt_cache_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "golden/safetensors_file.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;

const std::string kDumps = std::string(KVCHECK_SOURCE_DIR) + "/golden/dumps/";
constexpr size_t kLayers = 5;
constexpr int64_t kTokens = 13;  // in 16 slots, where a file has slots

PromptCache Read(const std::string& name) {
  SafetensorsFile file(kDumps + name);
  EXPECT_TRUE(IsPromptCache(file.index())) << name;
  return ReadPromptCache(&file);
}

void ExpectExtents(const PromptCache& cache) {
  ASSERT_EQ(cache.layers.size(), kLayers);
  for (const PromptCacheLayer& layer : cache.layers) {
    EXPECT_EQ(layer.batch, 1);
    EXPECT_EQ(layer.kv_heads, 2);
    EXPECT_EQ(layer.tokens, kTokens);
    EXPECT_EQ(layer.k_dim, 64);
    EXPECT_EQ(layer.v_dim, 64);
  }
}

TEST(PromptCacheFile, ReadsPlainRowsOfTheTokensThatAreThere) {
  const PromptCache cache = Read("cache.safetensors");
  ExpectExtents(cache);
  SafetensorsFile file(kDumps + "cache.safetensors");
  const Tensor slots = ReadTensor(file, "/3.1");
  const Tensor& v = cache.layers[3].tensors.at("v");
  EXPECT_EQ(Print(cache.layers[3].v), "bf16");
  ASSERT_EQ(v.shape, (Shape{{"B", 1}, {"Hkv", 2}, {"T", kTokens}, {"Dv", 64}}));
  // The second head begins behind all slots of the first.
  const int64_t slot_count = slots.shape.axes[2].extent;
  ASSERT_GT(slot_count, kTokens);
  for (int64_t i = 0; i < kTokens * 64; ++i) {
    ASSERT_EQ(v.As<uint16_t>()[kTokens * 64 + i], slots.As<uint16_t>()[slot_count * 64 + i]) << i;
  }
}

TEST(PromptCacheFile, AnOlderFileHasTheSameRowsAndCodes) {
  for (const auto& [older, newer] :
       {std::pair{"cache_0_31.safetensors", "cache.safetensors"},
        std::pair{"cache_0_31_4bit.safetensors", "cache_4bit.safetensors"}}) {
    const PromptCache one = Read(older);
    const PromptCache two = Read(newer);
    ExpectExtents(one);
    ExpectExtents(two);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(Print(one.layers[layer].k), Print(two.layers[layer].k)) << older;
      EXPECT_EQ(one.layers[layer].tensors, two.layers[layer].tensors) << older << " " << layer;
    }
  }
}

TEST(PromptCacheFile, KeysAndValuesMayHaveWidthsOfTheirOwn) {
  const PromptCache split = Read("cache_0_31_split.safetensors");
  ExpectExtents(split);
  const PromptCache wide = Read("cache_8bit.safetensors");
  const PromptCache narrow = Read("cache_4bit.safetensors");
  for (size_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(Print(split.layers[layer].k), "affine:8:g64:bf16");
    EXPECT_EQ(Print(split.layers[layer].v), "affine:4:g64:bf16");
    const TensorMap& tensors = split.layers[layer].tensors;
    EXPECT_EQ(tensors.size(), 6u);
    EXPECT_EQ(tensors.at("k_codes"), wide.layers[layer].tensors.at("k_codes"));
    EXPECT_EQ(tensors.at("k_biases"), wide.layers[layer].tensors.at("k_biases"));
    EXPECT_EQ(tensors.at("v_codes"), narrow.layers[layer].tensors.at("v_codes"));
    EXPECT_EQ(tensors.at("v_scales"), narrow.layers[layer].tensors.at("v_scales"));
  }
}

// A file whose index says what this test wants, over the tensors of a real one.
class Changed : public TensorSource {
 public:
  explicit Changed(const std::string& name) : file_(kDumps + name), index_(file_.index()) {}
  const std::string& path() const override { return file_.path(); }
  const FileIndex& index() const override { return index_; }
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override {
    file_.ReadElements(dataset, first, count, out);
  }
  void Say(const std::string& key, const std::string& text) {
    index_.objects.at("/").attributes["metadata." + key] = text;
  }
  FileIndex& Index() { return index_; }
  std::string Refusal() {
    try {
      ReadPromptCache(this);
    } catch (const Error& error) {
      return error.message();
    }
    return "read";
  }

 private:
  SafetensorsFile file_;
  FileIndex index_;
};

TEST(PromptCacheFile, WhatDoesNotFitIsRefusedWithItsLayer) {
  const std::string split = "cache_0_31_split.safetensors";
  const auto refusal = [&](const std::string& key, const std::string& text) {
    Changed file(split);
    file.Say(key, text);
    return file.Refusal();
  };
  EXPECT_THAT(refusal("2.1", "RotatingKVCache"), HasSubstr("layer 1: a RotatingKVCache"));
  EXPECT_THAT(refusal("0.2.0", "many"), HasSubstr("layer 2: 'many' of its state is no number"));
  EXPECT_THAT(refusal("0.0.0", "14"), HasSubstr("layer 0: 0.0.0 has 13 slots, for 14 tokens"));
  EXPECT_THAT(refusal("0.0.2", "4"), HasSubstr("codes, scales and biases of k are not those of 4"));
  EXPECT_THAT(refusal("0.0.2", "64"), HasSubstr("does not say group sizes and bits"));
  EXPECT_THAT(refusal("0.4.5", "1"), HasSubstr("layer 4: its state has 6 numbers"));
  Changed missing(split);
  missing.Index().objects.erase("/3.1.2");
  EXPECT_THAT(missing.Refusal(), HasSubstr("layer 3: 3.1.2 is missing"));
  Changed empty(split);
  empty.Index().objects.erase("/0.0.0");
  EXPECT_THAT(empty.Refusal(), HasSubstr("layer 0: it has no tokens"));
}

TEST(PromptCacheFile, OtherFilesAreNone) {
  for (const char* name : {"weights.safetensors", "state.safetensors", "attention.safetensors"}) {
    EXPECT_FALSE(IsPromptCache(SafetensorsFile(kDumps + name).index())) << name;
  }
}

}  // namespace
}  // namespace kvcheck
