#include "tools/prefix_disk/import_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "golden/prompt_cache_file.h"
#include "golden/safetensors_file.h"
#include "reference/spec/error.h"
#include "stored_prompts.h"
#include "temporary_folder.h"
#include "tools/prefix_disk/export_prompt.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;

const std::string kDumps = std::string(KVCHECK_SOURCE_DIR) + "/golden/dumps/";
// Of the model of the dumps, whose prompt has 13 tokens.
const std::string kModel = "block=1 tokens=64 layers=5 hkv=2 dk=64 x=bf16";

Tokens Prompt() {
  Tokens prompt(13);
  std::iota(prompt.begin(), prompt.end(), 100);
  return prompt;
}

optimized::Rows Imported(const std::string& name) {
  const PrefixSetup setup = optimized::SetupOf(kModel);
  optimized::PrefixCache cache(setup);
  EXPECT_EQ(ImportPrompt(kDumps + name, &cache, setup, Prompt(), {}), 13) << name;
  auto request = cache.Open(Prompt(), {}, true);
  EXPECT_EQ(request->tokens(), 13) << name;
  optimized::Rows rows = optimized::ReadOf(&cache, setup, *request);
  cache.Close(std::move(request), false);
  return rows;
}

TEST(ImportPrompt, PlainRowsAreThoseOfTheFile) {
  const optimized::Rows rows = Imported("cache.safetensors");
  SafetensorsFile file(kDumps + "cache.safetensors");
  std::vector<std::byte> k;
  for (const PromptCacheLayer& layer : ReadPromptCache(&file).layers) {
    const std::vector<std::byte>& bytes = layer.tensors.at("k").bytes;
    k.insert(k.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(rows.k, k);
}

TEST(ImportPrompt, OlderFilesHoldTheSameRows) {
  EXPECT_EQ(Imported("cache_0_31.safetensors"), Imported("cache.safetensors"));
  EXPECT_EQ(Imported("cache_0_31_4bit.safetensors"), Imported("cache_4bit.safetensors"));
}

TEST(ImportPrompt, KeysAndValuesOfTwoWidthsAreThoseOfEach) {
  const optimized::Rows split = Imported("cache_0_31_split.safetensors");
  EXPECT_EQ(split.k, Imported("cache_8bit.safetensors").k);
  EXPECT_EQ(split.v, Imported("cache_4bit.safetensors").v);
  EXPECT_NE(split.v, Imported("cache.safetensors").v);
}

TEST(ImportPrompt, WhatIsExportedComesBack) {
  const TemporaryFolder folder;
  const PrefixSetup setup = optimized::SetupOf("block=4 tokens=64 layers=3 hkv=2 dk=64");
  const Tokens prompt = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::string path = folder.path() + "/prompt.safetensors";
  Store first(setup, folder.path() + "/first");
  ASSERT_TRUE(first.Put(prompt));
  ASSERT_EQ(ExportPrompt(&first.cache, setup, prompt, {}, path), 8);
  Store second(setup, folder.path() + "/second");
  EXPECT_EQ(ImportPrompt(path, &second.cache, setup, prompt, {}), 8);
  EXPECT_EQ(second.Hit(prompt), 8);
}

TEST(ImportPrompt, WhatIsOfAnotherModelIsRefused) {
  const auto refusal = [](const std::string& name, const std::string& text, const Tokens& prompt) {
    const PrefixSetup setup = optimized::SetupOf(text);
    optimized::PrefixCache cache(setup);
    try {
      ImportPrompt(kDumps + name, &cache, setup, prompt, {});
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("taken");
  };
  EXPECT_THAT(
      refusal("cache.safetensors", "block=1 tokens=64 layers=4 hkv=2 dk=64 x=bf16", Prompt()),
      HasSubstr("5 layers, not 4"));
  EXPECT_THAT(
      refusal("cache.safetensors", "block=1 tokens=64 layers=5 hkv=2 dk=64 x=f16", Prompt()),
      HasSubstr("channels in bf16 for 13 tokens"));
  EXPECT_THAT(refusal("cache.safetensors", kModel, {1, 2}), HasSubstr("in bf16 for 2"));
  EXPECT_THAT(refusal("weights.safetensors", kModel, Prompt()), HasSubstr("no prompt cache"));
}

TEST(ImportPrompt, WithoutRoomNothingIsKept) {
  const PrefixSetup setup = optimized::SetupOf("block=1 tokens=8 layers=5 hkv=2 dk=64 x=bf16");
  optimized::PrefixCache cache(setup);
  EXPECT_EQ(ImportPrompt(kDumps + "cache.safetensors", &cache, setup, Prompt(), {}), 0);
  EXPECT_EQ(cache.GetCounters().blocks, 0);
}

}  // namespace
}  // namespace kvcheck
