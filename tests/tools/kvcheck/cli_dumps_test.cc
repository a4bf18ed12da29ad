// kvcheck compare on files as mlx-lm, PyTorch and h5py write them themselves (golden/dumps, made by
// golden/make/make_dumps_*.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "golden/safetensors_file.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class CompareDumps : public ToolTest {
 protected:
  // The dumps stand in the folder under their own names.
  void SetUp() override {
    ToolTest::SetUp();
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(KVCHECK_SOURCE_DIR) + "/golden/dumps")) {
      std::filesystem::copy(entry.path(), Path(entry.path().filename().string()));
    }
  }
  ToolRun Compare(const std::string& gold, const std::string& got,
                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"compare", gold, got};
    words.insert(words.end(), more.begin(), more.end());
    return Tool(words);
  }
  // Turns a bit of the tensor, in the lowest bits of its middle element.
  void Damage(const std::string& file, const std::string& tensor) const {
    const int64_t at = [&] {
      const SafetensorsFile source(Path(file));
      const ObjectRecord& record = source.index().objects.at(tensor);
      const int64_t size = static_cast<int64_t>(SizeInBytes(record.dtype));
      return *record.data_offset + record.shape.ElementCount() / 4 * size;
    }();
    std::fstream stream(Path(file), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(at);
    const char byte = static_cast<char>(stream.get());
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 4));
  }
};

bool Has(const ToolRun& run, const std::string& text) {
  return run.out.find(text) != std::string::npos;
}

// The first words of every line that starts so, in order.
std::vector<std::string> LinesOf(const ToolRun& run, const std::string& start) {
  std::vector<std::string> names;
  for (size_t at = 0; at < run.out.size();) {
    const size_t end = std::min(run.out.find('\n', at), run.out.size());
    const std::string line = run.out.substr(at, end - at);
    if (line.starts_with(start)) {
      names.push_back(line.substr(start.size(), line.find("  ", start.size()) - start.size()));
    }
    at = end + 1;
  }
  return names;
}

using Texts = std::vector<std::string>;

TEST_F(CompareDumps, PromptCacheOfMlxLmSurvivesLoadAndSave) {
  const ToolRun run = Compare("cache.safetensors", "cache_reloaded.safetensors");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.out,
            "15 tensors: 15 passed; 15 compared by 1 rule, 81960 bytes; 20485 elements judged\n");
  Damage("cache_reloaded.safetensors", "/2.1");
  const ToolRun damaged = Compare("cache.safetensors", "cache_reloaded.safetensors");
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_EQ(LinesOf(damaged, "FAIL  "), (Texts{"/2.1"})) << damaged.out;
}

TEST_F(CompareDumps, TokenByTokenIsTheSamePromptCache) {
  EXPECT_EQ(Compare("cache.safetensors", "cache_steps.safetensors").exit_code, 0);
}

TEST_F(CompareDumps, QuantizedCacheOfMlxLmIsWithinTheBoundOfItsFormat) {
  for (const std::string bits : {"4", "8"}) {
    const std::string got = "cache_" + bits + "bit.safetensors";
    const std::string rule = "codec:affine:" + bits + ":g64";
    const ToolRun run = Compare("cache.safetensors", got, {"--tol", rule});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    // Keys, values and offset of five layers, and what mlx-lm says of group size and bits.
    EXPECT_TRUE(run.out.starts_with("25 tensors: 25 passed; 25 compared by 2 rules, ")) << run.out;
    // The bytes are those of the encoder, as on the machine that made them.
    EXPECT_EQ(Compare("cache.safetensors", got, {"--tol", rule + ",encode=mlx_cpu,codes=exact"})
                  .exit_code,
              0);
    const ToolRun verbose = Compare("cache.safetensors", got, {"--tol", rule, "-v"});
    EXPECT_TRUE(Has(verbose, "the bits of " + rule)) << verbose.out;
    EXPECT_TRUE(Has(verbose, "the group size of " + rule)) << verbose.out;
  }
  // Without the rule: other tensors.
  const ToolRun plain = Compare("cache.safetensors", "cache_4bit.safetensors");
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_TRUE(Has(plain, "(10 missing, 40 extra)")) << plain.out;
}

TEST_F(CompareDumps, WrongFormatOfAQuantizedCacheIsSaidByItsTensors) {
  const ToolRun bits =
      Compare("cache.safetensors", "cache_4bit.safetensors", {"--tol", "codec:affine:8:g64"});
  EXPECT_EQ(bits.exit_code, 1);
  EXPECT_TRUE(Has(bits,
                  "FAIL  /0.0  codes: has shape 1x2x16x8, affine:8:g64:bf16 stores rows "
                  "1x2x16x64 as 1x2x16x16"))
      << bits.out;
  EXPECT_TRUE(Has(bits, "FAIL  /0.4  tensor[]: got 4, expected 8")) << bits.out;
  // A plain format has no triplets.
  const ToolRun plain =
      Compare("cache.safetensors", "cache_4bit.safetensors", {"--tol", "codec:bf16"});
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_TRUE(Has(plain, "(10 missing, 40 extra)")) << plain.out;
  // A rule of another kind for one of the numbers leaves them extra tensors.
  std::ofstream(Path("rules.txt")) << "*.4 exact\n";
  const ToolRun ruled = Compare("cache.safetensors", "cache_4bit.safetensors",
                                {"--tol", "codec:affine:4:g64", "--rules", "rules.txt"});
  EXPECT_EQ(ruled.exit_code, 1);
  EXPECT_EQ(LinesOf(ruled, "FAIL  "), (Texts{"/0.4", "/1.4", "/2.4", "/3.4", "/4.4"})) << ruled.out;
}

TEST_F(CompareDumps, EveryPartOfAQuantizedCacheIsLookedAt) {
  const std::pair<const char*, const char*> parts[] = {
      {"/3.0.0", "/3.0"}, {"/3.0.1", "/3.0"}, {"/3.0.2", "/3.0"}, {"/3.1.0", "/3.1"},
      {"/3.2", "/3.2"},   {"/3.3", "/3.3"},   {"/3.4", "/3.4"}};
  const std::string whole = "cache_4bit.safetensors";
  for (const auto& [part, name] : parts) {
    std::filesystem::copy(Path(whole), Path("damaged.safetensors"),
                          std::filesystem::copy_options::overwrite_existing);
    Damage("damaged.safetensors", part);
    const ToolRun run =
        Compare("cache.safetensors", "damaged.safetensors", {"--tol", "codec:affine:4:g64"});
    EXPECT_EQ(run.exit_code, 1) << part << "\n" << run.out;
    EXPECT_EQ(LinesOf(run, "FAIL  "), (Texts{name})) << run.out;
  }
}

TEST_F(CompareDumps, QuantizedLayersOfMlxAreFoundByTheirWeight) {
  // Biases and norms are not quantized, and are held to their bits.
  std::ofstream(Path("rules.txt")) << "layers.[02].weight codec:affine:4:g64\n";
  const Texts rules = {"--rules", "rules.txt"};
  const ToolRun run = Compare("weights.safetensors", "weights_4bit.safetensors", rules);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("5 tensors: 5 passed; 5 compared by 2 rules")) << run.out;
  // Rows of 8 cannot be quantized in groups of 64.
  const ToolRun all =
      Compare("weights.safetensors", "weights_4bit.safetensors", {"--tol", "codec:affine:4:g64"});
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_EQ(LinesOf(all, "ILLEGAL_CASE  "), (Texts{"/layers.2.bias"})) << all.out;
  // layers.2.bias is the layer's own, layers.2.biases are its format's.
  for (const auto& [part, name] :
       {std::pair{"/layers.2.biases", "/layers.2.weight"}, {"/layers.2.bias", "/layers.2.bias"}}) {
    Damage("weights_4bit.safetensors", part);
    const ToolRun wrong = Compare("weights.safetensors", "weights_4bit.safetensors", rules);
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_EQ(LinesOf(wrong, "FAIL  "), (Texts{name})) << wrong.out;
    Damage("weights_4bit.safetensors", part);
  }
}

TEST_F(CompareDumps, FaultOfAnOldReleaseIsFoundBehindTheLayerThatHasIt) {
  // Layer 2 is the first with a window, so that keys and values from layer 3 on are wrong.
  const ToolRun run = Compare("cache.safetensors", "cache_old_window.safetensors", {"-v"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(LinesOf(run, "FAIL  "), (Texts{"/3.0", "/3.1", "/4.0", "/4.1"})) << run.out;
  // The window of 4 hides nothing before the token of index 4; the last 3 slots are empty.
  EXPECT_TRUE(Has(run, "axis 1=0 ....!!!!!!!!!...")) << run.out;
  EXPECT_TRUE(Has(run, "pattern: only indices from 3 on")) << run.out;
}

const Texts kNamesOfMlxLm = {"--map", "s#layers/(\\d+)/keys#$1.0#",
                             "--map", "s#layers/(\\d+)/values#$1.1#",
                             "--map", "s#layers/(\\d+)/offset#$1.2#"};

TEST_F(CompareDumps, DumpOfH5pyUnderOtherNamesAndInAWiderType) {
  Texts arguments = kNamesOfMlxLm;
  const ToolRun types = Compare("cache.safetensors", "cache.h5", arguments);
  EXPECT_EQ(types.exit_code, 1);
  EXPECT_TRUE(Has(types, "has type float32, bfloat16 expected")) << types.out;
  arguments.insert(arguments.end(), {"--cast", "f32"});
  const ToolRun run = Compare("cache.safetensors", "cache.h5", arguments);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("15 tensors: 15 passed; 15 compared by 1 rule")) << run.out;
  // Axes have the dimension labels of h5py.
  const ToolRun wrong = Compare("cache_old_window.safetensors", "cache.h5", arguments);
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_TRUE(Has(wrong, "FAIL  /3.0  tensor[batch=0, head=1, token=4, channel=43]")) << wrong.out;
}

TEST_F(CompareDumps, StateDictsOfPyTorchByTheTypeTheyWereSavedIn) {
  EXPECT_EQ(
      Compare("state.safetensors", "state_bf16.safetensors", {"--tol", "codec:bf16"}).exit_code, 0);
  EXPECT_EQ(
      Compare("state.safetensors", "state_fp8.safetensors", {"--tol", "codec:f8e4m3fn"}).exit_code,
      0);
  EXPECT_EQ(Compare("state.safetensors", "state_bf16.safetensors").exit_code, 1);
  for (const auto& [file, rule] : {std::pair{"state_bf16.safetensors", "codec:bf16"},
                                   {"state_fp8.safetensors", "codec:f8e4m3fn"}}) {
    Damage(file, "/layers.1.linear2.weight");
    const ToolRun run = Compare("state.safetensors", file, {"--tol", rule});
    EXPECT_EQ(run.exit_code, 1) << file;
    EXPECT_EQ(LinesOf(run, "FAIL  "), (Texts{"/layers.1.linear2.weight"})) << run.out;
  }
}

TEST_F(CompareDumps, StepOfTrainingIsSeenWhereItWasTaken) {
  const ToolRun run = Compare("state.safetensors", "state_tuned.safetensors");
  EXPECT_EQ(run.exit_code, 1);
  const Texts failed = LinesOf(run, "FAIL  ");
  EXPECT_EQ(failed.size(), 12u) << run.out;
  for (const std::string& name : failed) EXPECT_TRUE(name.starts_with("/layers.1.")) << name;
  EXPECT_TRUE(Has(run, "pattern: only .1, never .0")) << run.out;
}

TEST_F(CompareDumps, TwoKernelsOfPyTorchAgreeWithinBothPlans) {
  const Texts plans = {"--gold-plan", "base=torch_cpu_flash_bf16", "--plan", "base=torch_cpu_math"};
  const auto compare = [&](const std::string& mask) {
    Texts arguments = {
        "--case", "attention b=2 hq=4 hkv=2 l=17 t=17 d=32 q=bf16 k=bf16 v=bf16 out=bf16 mask=" +
                      mask + " data=file"};
    arguments.insert(arguments.end(), plans.begin(), plans.end());
    return Compare("attention.safetensors", "attention_math.safetensors", arguments);
  };
  EXPECT_EQ(compare("causal_top_left").exit_code, 0);
  EXPECT_EQ(compare("none").exit_code, 3);  // GOLD answers another case
  // As README.md says.
  const ToolRun bits =
      Compare("attention.safetensors", "attention_math.safetensors", {"--include", "out", "-v"});
  EXPECT_EQ(bits.exit_code, 1);
  EXPECT_TRUE(Has(bits, "1182 of 4352 judged elements fail")) << bits.out;
  EXPECT_TRUE(Has(bits, "; 580 ulp")) << bits.out;
  Damage("attention_math.safetensors", "/out");
  EXPECT_EQ(compare("causal_top_left").exit_code, 1);
}

}  // namespace
}  // namespace kvcheck
