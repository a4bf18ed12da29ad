// kvcheck compare of files without the schema: selection, rules, reports, exit codes; and the holes
// through which public comparators let differences pass, each with the report it comes from.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "golden/hdf5_file.h"
#include "golden/plain_writer.h"
#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/tool_process.h"
#include "tools/compare/bless.h"

namespace kvcheck {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor Values(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(dtype, shape);
  EncodeFrom(values, dtype, tensor.bytes.data());
  return tensor;
}

Tensor F64(const std::vector<double>& values) {
  return Values(DType::kFloat64, Shape::Unnamed({static_cast<int64_t>(values.size())}), values);
}

// Element i is i + first.
Tensor Counting(const Shape& shape, double first, DType dtype = DType::kFloat32) {
  std::vector<double> values(static_cast<size_t>(shape.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i);
  return Values(dtype, shape, values);
}

class CompareStored : public ToolTest {
 protected:
  void Write(const std::string& name, const TensorMap& tensors) const {
    PlainWriter writer(Path(name));
    for (const auto& [path, tensor] : tensors) {
      writer.Begin(path, tensor.dtype, tensor.shape);
      writer.Append(tensor.bytes);
    }
    writer.Finish();
  }
  // compare gold.h5 got.h5 of these tensors.
  ToolRun Compare(const TensorMap& gold, const TensorMap& got,
                  const std::vector<std::string>& arguments = {}) const {
    Write("gold.h5", gold);
    Write("got.h5", got);
    return Again(arguments);
  }
  ToolRun Again(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {"compare", "gold.h5", "got.h5"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return Tool(words);
  }
  // compare of one tensor /x each.
  int Exit(const Tensor& gold, const Tensor& got,
           const std::vector<std::string>& arguments = {}) const {
    return Compare({{"/x", gold}}, {{"/x", got}}, arguments).exit_code;
  }
};

// Layers of keys and values whose contents all differ.
TensorMap Cache(int layers) {
  TensorMap tensors;
  for (int i = 0; i < layers; ++i) {
    const Shape shape = {{"B", 1}, {"Hkv", 2}, {"T", 5}, {"Dk", 4}};
    tensors["/layers/" + std::to_string(i) + "/keys"] = Counting(shape, 1000 * i);
    tensors["/layers/" + std::to_string(i) + "/values"] = Counting(shape, 1000 * i + 500);
  }
  return tensors;
}

void Change(TensorMap* tensors, const std::string& path, int64_t element, float by) {
  tensors->at(path).As<float>()[element] += by;
}

TEST_F(CompareStored, WhatAgreesIsOneLine) {
  const ToolRun run = Compare(Cache(3), Cache(3));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "6 tensors: 6 passed; 6 compared by 1 rule, 1920 bytes; 240 elements judged\n");
  EXPECT_EQ(run.err, "");
  const ToolRun verbose = Again({"-v"});
  EXPECT_NE(verbose.out.find("PASS  /layers/0/keys"), std::string::npos) << verbose.out;
}

TEST_F(CompareStored, FailureNamesTensorElementDistanceAndCommand) {
  TensorMap got = Cache(3);
  got.at("/layers/1/keys").As<float>()[33] = std::nextafter(1033.0F, 2000.0F);
  const ToolRun run = Compare(Cache(3), got);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(
      run.out.starts_with("FAIL  /layers/1/keys  tensor[b=0, hkv=1, t=3, dk=1]: got 1033.0001"))
      << run.out;
  EXPECT_NE(run.out.find("ulp: elements  0: 39, 1: 1"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("kvcheck compare gold.h5 got.h5 --include /layers/1/keys\n"),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("6 tensors: 5 passed, 1 failed; 6 compared"), std::string::npos);
  // The command repeats it.
  EXPECT_EQ(Again({"--include", "/layers/1/keys"}).exit_code, 1);
  EXPECT_EQ(Again({"--exclude", "layers/1/*"}).exit_code, 0);
}

TEST_F(CompareStored, MissingAndExtraTensorsFailUnlessAllowed) {
  TensorMap gold = Cache(2);
  TensorMap got = Cache(2);
  gold["/old"] = Counting({{"", 2}}, 0);
  got["/new"] = Counting({{"", 2}}, 0);
  const ToolRun run = Compare(gold, got);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("FAIL  /new  extra: got.h5 has it, gold.h5 has not"), std::string::npos);
  EXPECT_NE(run.out.find("FAIL  /old  missing: gold.h5 has it, got.h5 has not"), std::string::npos);
  EXPECT_NE(run.out.find("6 tensors: 4 passed, 2 failed (1 missing, 1 extra); 4 compared"),
            std::string::npos)
      << run.out;
  EXPECT_EQ(Again({"--allow-missing", "old"}).exit_code, 1);
  EXPECT_EQ(Again({"--allow-extra", "new"}).exit_code, 1);
  const ToolRun allowed = Again({"--allow-missing", "old", "--allow-extra", "new"});
  EXPECT_EQ(allowed.exit_code, 0);
  EXPECT_NE(allowed.out.find("(1 missing as allowed, 1 extra as allowed)"), std::string::npos)
      << allowed.out;
}

TEST_F(CompareStored, RenamesMatchOtherSpellings) {
  TensorMap got;
  for (const auto& [path, tensor] : Cache(2)) got["/model/h" + path.substr(8)] = tensor;
  EXPECT_EQ(Compare(Cache(2), got, {"--map", "s#^model/h#layers/#"}).exit_code, 0);
  std::ofstream(Path("map.txt")) << "# names\ns#^model/h#layers/#\n";
  EXPECT_EQ(Again({"--map-file", "map.txt"}).exit_code, 0);
  EXPECT_EQ(Again({}).exit_code, 1);
  const ToolRun idle = Again({"--map", "s#^/layers#x#"});
  EXPECT_EQ(idle.exit_code, 2);
  EXPECT_NE(idle.err.find("changes no name"), std::string::npos) << idle.err;
  const ToolRun collision = Again({"--map", "s#h\\d#h#"});
  EXPECT_EQ(collision.exit_code, 2);
  EXPECT_NE(collision.err.find("/model/h0/keys and /model/h1/keys become /model/h/keys"),
            std::string::npos)
      << collision.err;
}

TEST_F(CompareStored, RulesDecidePerTensor) {
  TensorMap got = Cache(2);
  Change(&got, "/layers/1/keys", 7, 0.25F);
  EXPECT_EQ(Compare(Cache(2), got, {"--tol", "abs:0.25"}).exit_code, 0);
  EXPECT_EQ(Again({"--tol", "abs:0.125"}).exit_code, 1);
  std::ofstream(Path("r.txt")) << "*/keys abs:0.25\n";
  const ToolRun ruled = Again({"--rules", "r.txt"});
  EXPECT_EQ(ruled.exit_code, 0) << ruled.out;
  EXPECT_NE(ruled.out.find("4 compared by 2 rules"), std::string::npos) << ruled.out;
  std::ofstream(Path("tight.txt")) << "*/keys abs:0.125 reason=\"new kernel\"\n";
  const ToolRun tight = Again({"--rules", "tight.txt"});
  EXPECT_EQ(tight.exit_code, 1);
  EXPECT_NE(tight.out.find("(tight.txt:1: new kernel)"), std::string::npos) << tight.out;
  // What --tol asks for is loosened with a reason only.
  const ToolRun loose = Again({"--tol", "exact", "--rules", "r.txt"});
  EXPECT_EQ(loose.exit_code, 2);
  EXPECT_NE(loose.err.find("r.txt:1: 'abs:0.25,rel:0' may let pass what 'exact' (--tol)"),
            std::string::npos)
      << loose.err;
  std::ofstream(Path("idle.txt")) << "*/kyes abs:0.25\n";
  EXPECT_EQ(Again({"--rules", "idle.txt"}).exit_code, 2);
  std::ofstream(Path("bad.txt")) << "*/keys abs:0.25 because=x\n";
  EXPECT_NE(Again({"--rules", "bad.txt"}).err.find("bad.txt:1:17: unknown key 'because'"),
            std::string::npos);
  EXPECT_EQ(Again({"--rules", "absent.txt"}).exit_code, 2);
  EXPECT_EQ(Again({"--tol", "derived"}).exit_code, 2);
}

TEST_F(CompareStored, SliceComparesAPartAndKeepsItsCoordinates) {
  TensorMap got = Cache(1);
  Change(&got, "/layers/0/keys", 33, 1);  // hkv=1, t=3, dk=1
  EXPECT_EQ(Compare(Cache(1), got, {"--slice", "h=0"}).exit_code, 0);
  EXPECT_EQ(Again({"--slice", "t=0:3"}).exit_code, 0);
  const ToolRun run = Again({"--slice", "h=1,t=3"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("tensor[b=0, hkv=1, t=3, dk=1]"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("--slice h=1,t=3"), std::string::npos);
  for (const char* part : {"t=5", "x=0", "t=2:2", "4=0"}) {
    EXPECT_EQ(Again({"--slice", part}).exit_code, 2) << part;
  }
}

TEST_F(CompareStored, OtherTypeFailsUnlessItIsCastToOneThatHoldsBoth) {
  const Shape shape = {{"T", 9}};
  const Tensor wide = Counting(shape, 0);
  const Tensor narrow = Counting(shape, 0, DType::kBFloat16);
  EXPECT_EQ(Exit(wide, narrow), 1);
  EXPECT_EQ(Exit(wide, narrow, {"--cast", "float32"}), 0);
  EXPECT_EQ(Exit(narrow, wide, {"--cast", "f64"}), 0);
  EXPECT_EQ(Exit(wide, narrow, {"--cast", "bf16"}), 2);
  EXPECT_EQ(Exit(wide, narrow, {"--cast", "float31"}), 2);
  // 1/3 is another number in bf16.
  EXPECT_EQ(Exit(Values(DType::kFloat32, {{"", 1}}, {static_cast<double>(1.0F / 3)}),
                 Values(DType::kBFloat16, {{"", 1}}, {1.0 / 3}), {"--cast", "f32"}),
            1);
}

TEST_F(CompareStored, ShardsAreAPartitionAndAnEmptyOneIsNoPass) {
  TensorMap got = Cache(8);
  Change(&got, "/layers/5/values", 0, 1);
  Write("gold.h5", Cache(8));
  Write("got.h5", got);
  int failures = 0;
  int64_t compared = 0;
  for (int i = 1; i <= 3; ++i) {
    const ToolRun run = Again({"--shard", std::to_string(i) + "/3", "--json", "-"});
    failures += run.exit_code;
    compared += nlohmann::json::parse(run.out)["summary"]["tensors"]["compared"].get<int64_t>();
  }
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(compared, 16);
  EXPECT_EQ(Again({"--shard", "0/3"}).exit_code, 2);
  // /layers/0/keys is in the first of two parts.
  EXPECT_EQ(Again({"--include", "layers/0/keys", "--shard", "1/2"}).exit_code, 0);
  EXPECT_EQ(Again({"--include", "layers/0/keys", "--shard", "2/2"}).exit_code, 2);
}

TEST_F(CompareStored, BisectSkipsWhatCouldNotBeCompared) {
  TensorMap got = Cache(1);
  Write("gold.h5", Cache(1));
  Write("got.h5", got);
  EXPECT_EQ(Again({"--bisect"}).exit_code, 0);
  EXPECT_EQ(Again({"--bisect", "--include", "nothing"}).exit_code, 125);
  EXPECT_EQ(Again({"--bisect", "--no-such-option"}).exit_code, 125);
  EXPECT_EQ(Tool({"compare", "--bisect", "gold.h5", "absent.h5"}).exit_code, 125);
  Change(&got, "/layers/0/keys", 0, 1);
  Write("got.h5", got);
  EXPECT_EQ(Again({"--bisect"}).exit_code, 1);
  // MISTRUSTED proves nothing about a commit.
  EXPECT_EQ(Again({"--tol", "abs:100000"}).exit_code, 3);
  EXPECT_EQ(Again({"--bisect", "--tol", "abs:100000"}).exit_code, 125);
}

TEST_F(CompareStored, PatternsAcrossTensorsAreTrueSentences) {
  TensorMap got = Cache(16);
  for (int i = 12; i < 16; ++i) Change(&got, "/layers/" + std::to_string(i) + "/values", 1, 1);
  const ToolRun run = Compare(Cache(16), got);
  EXPECT_NE(run.out.find("pattern: only values, never keys\n"
                         "pattern: all layers from 12 on\n"),
            std::string::npos)
      << run.out;
  TensorMap shifted = Cache(5);
  TensorMap swapped = Cache(5);
  for (int i = 0; i < 5; ++i) {
    const std::string layer = "/layers/" + std::to_string(i);
    shifted[layer + "/keys"] = Cache(6).at("/layers/" + std::to_string(i + 1) + "/keys");
    shifted[layer + "/values"] = Cache(6).at("/layers/" + std::to_string(i + 1) + "/values");
    std::swap(swapped[layer + "/keys"], swapped[layer + "/values"]);
  }
  EXPECT_NE(Compare(Cache(5), shifted)
                .out.find("layer i of GOT equals layer i+1 of GOLD, bit for bit (8 tensors)"),
            std::string::npos);
  EXPECT_NE(
      Compare(Cache(5), swapped).out.find("keys and values are swapped, bit for bit (10 tensors)"),
      std::string::npos);
}

TEST_F(CompareStored, ReportsDoNotDependOnThreads) {
  TensorMap got = Cache(6);
  for (int i = 0; i < 6; ++i) Change(&got, "/layers/" + std::to_string(i) + "/keys", i, 1);
  got["/big"] = Counting({{"T", 300}, {"Dk", 999}}, 0);
  TensorMap gold = Cache(6);
  gold["/big"] = Counting({{"T", 300}, {"Dk", 999}}, 0);
  Change(&got, "/big", 123456, 3);
  Write("gold.h5", gold);
  Write("got.h5", got);
  const ToolRun text = Again({"-j", "1"});
  const ToolRun json = Again({"-j", "1", "--json", "-"});
  for (const char* threads : {"2", "5"}) {
    EXPECT_EQ(Again({"-j", threads}).out, text.out);
    EXPECT_EQ(Again({"-j", threads, "--json", "-"}).out, json.out);
  }
}

TEST_F(CompareStored, JsonAndJunitHoldTheCounts) {
  TensorMap got = Cache(2);
  got.erase("/layers/0/keys");
  Change(&got, "/layers/1/keys", 0, 1);
  Write("gold.h5", Cache(2));
  Write("got.h5", got);
  const nlohmann::json report = nlohmann::json::parse(Again({"--json", "-"}).out);
  const nlohmann::json& tensors = report["summary"]["tensors"];
  EXPECT_EQ(tensors["compared"], 3);
  EXPECT_EQ(tensors["missing"], 1);
  EXPECT_EQ(tensors["extra"], 0);
  EXPECT_EQ(tensors["bytes"], 3 * 40 * 4 * 2);
  EXPECT_EQ(report["summary"]["failed"], 2);
  EXPECT_EQ(report["cases"][2]["outputs"][0]["worst"]["coordinates"], "[b=0, hkv=0, t=0, dk=0]");
  EXPECT_NE(Again({"--junit", "-"}).out.find("tests=\"4\" failures=\"2\""), std::string::npos);
}

TEST_F(CompareStored, BlessWritesANewGoldenWithItsReason) {
  TensorMap gold = Cache(1);
  TensorMap got;
  for (const auto& [path, tensor] : Cache(1)) got["/new" + path] = tensor;
  Change(&got, "/new/layers/0/keys", 3, 0.5F);
  got["/new/added"] = Counting({{"", 2}}, 0);
  gold["/removed"] = Counting({{"", 2}}, 0);
  const std::vector<std::string> rename = {"--map", "s#^new/##"};
  const auto bless = [&](std::vector<std::string> more) {
    more.insert(more.end(), rename.begin(), rename.end());
    return Again(more);
  };
  EXPECT_EQ(Compare(gold, got, {"--map", "s#^new/##", "--bless", "next.h5"}).exit_code, 2);
  EXPECT_EQ(bless({"--reason", "why"}).exit_code, 2);
  const ToolRun run = bless({"--bless", "next.h5", "--reason", "rounding was fixed"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "added    /added  float32 2\n"
            "changed  /layers/0/keys  1 of 40 elements, at most by 0.5 (2.1e+06 ulp)\n"
            "removed  /removed  float32 2\n"
            "next.h5: 3 tensors written, 1 as in GOLD bit for bit; reason: rounding was fixed\n");
  const std::string bytes = golden_samples::ReadBytes(Path("next.h5"));
  for (const char* text : {kBlessReason, kBlessCommand, kBlessGoldHash, kBlessGotHash,
                           "rounding was fixed", "--map 's#^new/##' --bless next.h5"}) {
    EXPECT_NE(bytes.find(text), std::string::npos) << text;
  }
  // It is the golden of this GOT, and keeps GOLD's axes.
  EXPECT_EQ(Tool({"compare", "next.h5", "got.h5", "--map", "s#^new/##"}).exit_code, 0);
  EXPECT_EQ(Hdf5File(Path("next.h5")).index().objects.at("/layers/0/keys").shape.axes[1].name,
            "Hkv");
  // No other file is overwritten; GOLD is, whole.
  EXPECT_EQ(bless({"--bless", "next.h5", "--reason", "again"}).exit_code, 2);
  EXPECT_EQ(bless({"--bless", "got.h5", "--reason", "again"}).exit_code, 2);
  EXPECT_EQ(bless({"--bless", "gold.h5", "--reason", "r", "--exclude", "added"}).exit_code, 2);
  EXPECT_EQ(bless({"--bless", "./gold.h5", "--reason", "r"}).exit_code, 0);
  EXPECT_EQ(bless({}).exit_code, 0);
}

TEST_F(CompareStored, CodecRuleJudgesByTheFormatsOwnBound) {
  std::vector<double> values(4 * 128);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(static_cast<float>(std::sin(0.7 * static_cast<double>(i))));
  }
  const Tensor x = Values(DType::kFloat32, {{"T", 4}, {"Dk", 128}}, values);
  // Rounded to f16, kept as f16 or as f32.
  Tensor half = Values(DType::kFloat16, x.shape, values);
  EXPECT_EQ(Exit(x, half, {"--tol", "codec:f16"}), 0);
  half.As<uint16_t>()[77] ^= 2;
  EXPECT_EQ(Exit(x, half, {"--tol", "codec:f16"}), 1);
  // Codes, scales and biases in place of the tensor, as mlx-lm names them.
  const KvFormat format = ParseKvFormat(WholeLine("affine:4:g64:f32"));
  TensorMap encoded = EncodeRows(format, Profile(), x);
  const auto named = [&] {
    return TensorMap{{"/0.0.0", encoded.at("codes")},
                     {"/0.0.1", encoded.at("scales")},
                     {"/0.0.2", encoded.at("biases")}};
  };
  const ToolRun run = Compare({{"/0.0", x}}, named(), {"--tol", "codec:affine:4:g64"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("1 tensor: 1 passed; 1 compared by 1 rule"), std::string::npos) << run.out;
  EXPECT_EQ(Again({}).exit_code, 1);  // without the rule: missing and extra tensors
  EXPECT_EQ(Again({"--tol", "codec:affine:4:g64", "--slice", "t=0"}).exit_code, 2);
  encoded.at("scales").As<float>()[3] *= 2;
  EXPECT_EQ(Compare({{"/0.0", x}}, named(), {"--tol", "codec:affine:4:g64"}).exit_code, 1);
}

TEST_F(CompareStored, FirstPassAndJudgeAgreeOnWhatPasses) {
  TensorMap got = Cache(4);
  for (int i = 0; i < 4; ++i) Change(&got, "/layers/" + std::to_string(i) + "/keys", i, 0.25F);
  Change(&got, "/layers/2/values", 5, 0.5F);
  Write("gold.h5", Cache(4));
  Write("got.h5", got);
  const auto report = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--json", "-"});
    return nlohmann::json::parse(Again(arguments).out);
  };
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--tol", "abs:0.25"},
                                             {"--tol", "ulp:100"},
                                             {"--tol", "rel:2^-12"},
                                             {"--tol", "abs:0.25", "--slice", "t=0:2"},
                                             {"--tol", "abs:5000"}}) {
    std::vector<std::string> full = arguments;
    full.insert(full.end(), {"--stats", "full"});
    const nlohmann::json fast = report(arguments);
    const nlohmann::json slow = report(full);
    EXPECT_EQ(fast["summary"], slow["summary"]);
    for (size_t i = 0; i < fast["cases"].size(); ++i) {
      const nlohmann::json& a = fast["cases"][i]["outputs"][0];
      const nlohmann::json& b = slow["cases"][i]["outputs"][0];
      for (const char* same : {"outcome", "rule", "shape", "counts", "special", "warnings"}) {
        EXPECT_EQ(a[same], b[same]) << i << " " << same;
      }
      for (const char* metric : {"finite", "max_abs", "max_rel", "max_ulp"}) {
        EXPECT_EQ(a["metrics"][metric], b["metrics"][metric]) << i << " " << metric;
      }
      EXPECT_EQ(a["metrics"]["cosine"].is_null(), a["outcome"] == "PASS") << i;
      EXPECT_FALSE(b["metrics"]["cosine"].is_null()) << i;
    }
  }
}

TEST_F(CompareStored, OptionsThatDoNotBelongTogetherAreRefused) {
  Write("gold.h5", Cache(1));
  Write("got.h5", Cache(1));
  const std::vector<std::vector<std::string>> refused = {
      {"--plan", "base=stranger"}, {"--impl", "x"},         {"--nan", "maybe"},
      {"--stats", "some"},         {"--map", "a=/b"},       {"--include", "["},
      {"--tol", "ulp:-1"},         {"--cast", "nothing"},   {"--allow-missing", "none*"},
      {"--shard", "3/2"},          {"--map-file", "absent"}};
  for (const auto& arguments : refused) {
    const ToolRun run = Again(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments[0] << run.out;
    EXPECT_TRUE(run.err.starts_with("kvcheck: error: ")) << run.err;
  }
}

// h5diff 1.10.8 -p 0.01 exits with 0 for {1e-20, 3e-20} and {1e-20, 6e-20}: it takes differences
// below 2.2e-16 for none. numpy's allclose has atol=1e-8 unless told otherwise: numpy/numpy#7726.
TEST_F(CompareStored, HoleSmallNumbersAreComparedLikeLargeOnes) {
  EXPECT_EQ(Exit(F64({1e-20, 3e-20}), F64({1e-20, 6e-20})), 1);
  EXPECT_EQ(Exit(F64({1e-20, 3e-20}), F64({1e-20, 6e-20}), {"--tol", "rel:0.01"}), 1);
  EXPECT_EQ(Exit(F64({1e-20, 3e-20}), F64({1e-20, 3.01e-20}), {"--tol", "rel:0.01"}), 0);
  EXPECT_EQ(Exit(F64({6.938894e-18}), F64({0})), 1);
  EXPECT_EQ(Exit(F64({5e-324, 1}), F64({0, 1}), {"--tol", "rel:0.01"}), 1);
}

// h5diff 1.10.8 exits with 0 where objects are "not comparable": other rank or dimensions, float
// against integer, other sign (RFC_h5diff_NonComparable of The HDF Group). A test suite that passed
// because of it: Samsung/ONE#2658.
TEST_F(CompareStored, HoleWhatCannotBeComparedFails) {
  const Tensor x = Counting(Shape::Unnamed({2, 3}), 0);
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({3, 2}), 0)), 1);  // the same bytes
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({6}), 0)), 1);     // other rank
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({1, 2, 3}), 0)), 1);
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({2, 3}), 0, DType::kInt32)), 1);
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({2, 3}), 0, DType::kFloat64)), 1);
  const Shape shape = Shape::Unnamed({2});
  EXPECT_EQ(Exit(Values(DType::kInt8, shape, {1, 2}), Values(DType::kUInt8, shape, {1, 2})), 1);
  // One pair beside others that agree.
  TensorMap got = Cache(2);
  got["/layers/0/keys"] = x;
  EXPECT_EQ(Compare(Cache(2), got).exit_code, 1);
}

// By the same RFC, and in 1.10.8, empty datasets are not comparable, and exit with 0. Two of one
// shape cannot differ; of two shapes they do; alone they prove nothing.
TEST_F(CompareStored, HoleEmptyTensors) {
  const Tensor empty = Counting(Shape::Unnamed({0, 3}), 0);
  const Tensor other = Counting(Shape::Unnamed({0, 4}), 0);
  const Tensor one = Counting(Shape::Unnamed({1}), 1);
  EXPECT_EQ(Compare({{"/e", empty}, {"/x", one}}, {{"/e", empty}, {"/x", one}}).exit_code, 0);
  EXPECT_EQ(Compare({{"/e", empty}, {"/x", one}}, {{"/e", other}, {"/x", one}}).exit_code, 1);
  EXPECT_EQ(Compare({{"/e", empty}, {"/x", one}}, {{"/e", one}, {"/x", one}}).exit_code, 1);
  EXPECT_EQ(Exit(empty, empty), 3);
}

// h5diff takes any NaN for any other, as its manual says; assert_allclose passed NaN where it was
// told not to: numpy/numpy#8145; assertEqual of PyTorch takes NaN as equal: pytorch/pytorch#72194.
TEST_F(CompareStored, HoleNanPairs) {
  Tensor payload = F64({1, kNan});
  payload.As<uint64_t>()[1] ^= 1;
  const Tensor nan = F64({1, kNan});
  const Tensor number = F64({1, 2});
  struct Row {
    const Tensor& got;
    std::vector<std::string> arguments;
    int exit;
  };
  const Row rows[] = {
      {nan, {}, 0},
      {payload, {}, 1},
      {number, {}, 1},
      {nan, {"--nan", "fail"}, 1},
      {payload, {"--nan", "equal"}, 0},
      {number, {"--nan", "equal"}, 1},
      {nan, {"--tol", "rel:0.01"}, 1},
      {nan, {"--tol", "rel:0.01", "--nan", "equal-bits"}, 0},
      {payload, {"--tol", "rel:0.01", "--nan", "equal-bits"}, 1},
      {payload, {"--tol", "rel:0.01", "--nan", "equal"}, 0},
      {number, {"--tol", "rel:0.01", "--nan", "equal"}, 1},
  };
  for (size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(Exit(nan, rows[i].got, rows[i].arguments), rows[i].exit) << "row " << i;
  }
  EXPECT_EQ(Exit(number, nan, {"--tol", "abs:0.01", "--nan", "equal"}), 1);
}

// h5diff 1.10.8 prints nothing, and with -r "0 differences found" for every object, when one file
// has a dataset more; the exit code alone tells: HDFGroup/hdf5#6102. Here it is a failure with a
// name.
TEST_F(CompareStored, HoleMissingObjectsInEitherOrderOfTheFiles) {
  TensorMap more = Cache(2);
  more["/layers/2/keys"] = Counting({{"", 2}}, 0);
  const ToolRun extra = Compare(Cache(2), more);
  EXPECT_EQ(extra.exit_code, 1);
  EXPECT_NE(extra.out.find("FAIL  /layers/2/keys  extra"), std::string::npos) << extra.out;
  const ToolRun missing = Compare(more, Cache(2));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.out.find("FAIL  /layers/2/keys  missing"), std::string::npos) << missing.out;
}

// allclose(a, b) is not allclose(b, a): its tolerance grows with the second one
// (numpy/numpy#13395 quotes the definition). Here it is always GOLD's.
TEST_F(CompareStored, HoleToleranceIsOfGoldWhateverTheOrder) {
  const Tensor small = F64({10});
  const Tensor large = F64({11});
  EXPECT_EQ(Exit(large, small, {"--tol", "rel:0.095"}), 0);  // 1 <= 0.095 x 11
  EXPECT_EQ(Exit(small, large, {"--tol", "rel:0.095"}), 1);  // 1 > 0.095 x 10
  EXPECT_EQ(Exit(small, large), 1);
  EXPECT_EQ(Exit(large, small), 1);
}

TEST_F(CompareStored, HoleNothingSelectedIsNoPass) {
  Write("gold.h5", {});
  Write("got.h5", {});
  EXPECT_EQ(Again({}).exit_code, 2);
  Write("gold.h5", Cache(1));
  Write("got.h5", Cache(1));
  EXPECT_EQ(Again({"--include", "*/queries"}).exit_code, 2);
  EXPECT_EQ(Again({"--exclude", "*"}).exit_code, 2);
}

TEST_F(CompareStored, HoleTypeThatAnAttributeAloneTellsApartFails) {
  // Both are stored as unsigned integers of 8 bits, with the same bytes.
  const Shape shape = Shape::Unnamed({3});
  Tensor e4m3(DType::kFloat8E4M3FN, shape);
  e4m3.As<uint8_t>()[0] = 0x38;
  Tensor e5m2 = e4m3;
  e5m2.dtype = DType::kFloat8E5M2;
  EXPECT_EQ(Exit(e4m3, e5m2), 1);
  EXPECT_EQ(Exit(e4m3, e4m3), 0);
  // Names of axes are no data.
  EXPECT_EQ(Exit(Counting({{"T", 3}}, 1), Counting({{"L", 3}}, 1)), 0);
}

}  // namespace
}  // namespace kvcheck
