// kvcheck compare --case on dumps as people make them: other names, upcast, other orders of axes,
// inputs and outputs apart; and what is refused, with the option that decides.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "golden/reader.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/stored_files.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

using Texts = std::vector<std::string>;

// The tensor with its axes in this order, in another type.
Tensor Stored(const Tensor& tensor, const std::vector<size_t>& order, DType dtype,
              const std::vector<int64_t>& extents = {}) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  std::vector<int64_t> stride(order.size());
  int64_t step = 1;
  for (size_t i = order.size(); i > 0; --i) {
    stride[order[i - 1]] = step;
    step *= tensor.shape.axes[order[i - 1]].extent;
  }
  std::vector<double> moved(values.size());
  std::vector<int64_t> shape;
  for (const size_t axis : order) shape.push_back(tensor.shape.axes[axis].extent);
  for (int64_t element = 0; element < tensor.ElementCount(); ++element) {
    const std::vector<int64_t> at = tensor.shape.Coordinates(element);
    const int64_t to = std::inner_product(at.begin(), at.end(), stride.begin(), int64_t{0});
    moved[static_cast<size_t>(to)] = values[static_cast<size_t>(element)];
  }
  return Values(dtype, Shape::Unnamed(extents.empty() ? shape : extents), moved);
}

const std::vector<size_t> kOwn = {0, 1, 2, 3};
const std::vector<size_t> kHeadsBehind = {0, 2, 1, 3};

class CaseDumps : public CompareStored {
 protected:
  void SetUp() override {
    CompareStored::SetUp();
    Answer(
        "attention b=1 hq=4 hkv=2 l=3 t=7 d=32 q=bf16 k=bf16 v=bf16 out=bf16 "
        "mask=causal_bottom_right");
  }
  // The tensors of a case, as a kernel of plain_f32 answers it.
  void Answer(const std::string& text) {
    case_text_ = text + " data=file";
    Question question;
    question.c = ParseCase(text + " data=gauss:3");
    question.plan = ParsePlan(kHonestPlan);
    question.inputs = GenerateCaseInputs(question.c, {});
    tensors_ = question.inputs;
    const std::unique_ptr<Implementation> kernel =
        MakeImplementation(CaseKind::kAttention, "simulated", question.plan, {});
    const auto answer = kvcheck::Answer(*kernel, question);
    ASSERT_TRUE(answer);
    for (const auto& [name, tensor] : answer->tensors()) tensors_[name] = tensor;
  }
  Tensor Of(const std::string& name, const std::vector<size_t>& order = kOwn,
            DType dtype = DType::kFloat32, const std::vector<int64_t>& extents = {}) const {
    return Stored(tensors_.at(name), order, dtype, extents);
  }
  ToolRun Judge(const Texts& files, const Texts& more = {}) const {
    Texts words = {"compare"};
    words.insert(words.end(), files.begin(), files.end());
    words.insert(words.end(), {"--case", case_text_, "--plan", kHonestPlan});
    words.insert(words.end(), more.begin(), more.end());
    return Tool(words);
  }
  ToolRun JudgeTensors(const TensorMap& tensors, const Texts& more = {}) const {
    Write("dump.h5", tensors);
    return Judge({"dump.h5"}, more);
  }
  TensorMap Own() const {
    return {{"/q", Of("q", kOwn, DType::kBFloat16)},
            {"/k", Of("k", kOwn, DType::kBFloat16)},
            {"/v", Of("v", kOwn, DType::kBFloat16)},
            {"/out", Of("out", kOwn, DType::kBFloat16)}};
  }

  std::string case_text_;
  TensorMap tensors_;
};

bool Says(const ToolRun& run, const std::string& text) {
  return (run.out + run.err).find(text) != std::string::npos;
}

TEST_F(CaseDumps, AsTheCaseHasItNeedsNoNote) {
  const ToolRun run = JudgeTensors(Own());
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_FALSE(Says(run, "note:")) << run.out;
}

TEST_F(CaseDumps, UpcastTensorsUnderTheNamesOfTorchAreTakenAndSaid) {
  for (const DType wide : {DType::kFloat32, DType::kFloat64}) {
    TensorMap dump = {{"/query", Of("q", kOwn, wide)},
                      {"/key", Of("k", kOwn, wide)},
                      {"/value", Of("v", kOwn, wide)},
                      {"/attn_output", Of("out", kHeadsBehind, wide)}};
    const ToolRun run = JudgeTensors(dump);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(Says(run, "note: q is /query: found under this name; " + std::string(Name(wide)) +
                              ", every value of which is one of bfloat16"))
        << run.out;
    EXPECT_TRUE(Says(run, "note: out is /attn_output: ")) << run.out;
    EXPECT_TRUE(Says(run, "axes B,L,Hq,Dv")) << run.out;
    // What was taken is judged: a wrong element fails, by the coordinates of the case.
    Tensor& out = dump.at("/attn_output");
    std::vector<double> values(static_cast<size_t>(out.ElementCount()));
    DecodeTo(out, 0, values);
    values[static_cast<size_t>((1 * 4 + 3) * 32 + 5)] = 8;
    EncodeFrom(values, wide, out.bytes.data());
    const ToolRun wrong = JudgeTensors(dump);
    EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
    EXPECT_TRUE(Says(wrong, "out[b=0, hq=3, l=1, dv=5]")) << wrong.out;
  }
}

TEST_F(CaseDumps, ValuesThatAreNotOfTheStatedTypeAreRefusedForInputsAndOutputsAlike) {
  for (const char* name : {"q", "k", "out"}) {
    TensorMap dump = Own();
    Tensor tensor = Of(name, kOwn, DType::kFloat32);
    tensor.As<float>()[33] = 0.1F;
    dump["/" + std::string(name)] = tensor;
    const ToolRun run = JudgeTensors(dump);
    EXPECT_EQ(run.exit_code, 2) << name << run.out << run.err;
    EXPECT_TRUE(Says(run, "1 of its ")) << run.out;
    EXPECT_TRUE(Says(run, "are none of bfloat16, the first at [0, 0, 1, 1]: 0.1")) << run.out;
    EXPECT_TRUE(Says(run, "(" + std::string(name) + "=f32)")) << run.out;
    // Also where --cast says that another type was meant.
    EXPECT_EQ(JudgeTensors(dump, {"--cast", "f32"}).exit_code, 2);
    // Of another type altogether.
    dump["/" + std::string(name)] = Of(name, kOwn, DType::kFloat16);
    EXPECT_EQ(JudgeTensors(dump).exit_code, 2) << name;
  }
}

TEST_F(CaseDumps, CastNamesATypeThatHoldsBoth) {
  // Stored in fewer bits than the case says: every value is one of f32, if that was meant.
  Answer("attention hq=2 hkv=2 l=3 t=5 d=16 q=f32 k=f32 v=f32 out=f32");
  std::vector<double> values(static_cast<size_t>(tensors_.at("q").ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 7) - 3;
  Question question;
  question.c = ParseCase(case_text_);
  question.plan = ParsePlan(kHonestPlan);
  question.inputs = {{"q", tensors_.at("q")}, {"k", tensors_.at("k")}, {"v", tensors_.at("v")}};
  EncodeFrom(values, DType::kFloat32, question.inputs.at("q").bytes.data());
  const auto kernel = MakeImplementation(CaseKind::kAttention, "simulated", question.plan, {});
  tensors_["q"] = question.inputs.at("q");
  tensors_["out"] = kvcheck::Answer(*kernel, question)->tensors().at("out");
  const TensorMap dump = {{"/q", Of("q", kOwn, DType::kBFloat16)},
                          {"/k", Of("k")},
                          {"/v", Of("v")},
                          {"/out", Of("out")}};
  const ToolRun bare = JudgeTensors(dump);
  EXPECT_EQ(bare.exit_code, 2) << bare.out;
  EXPECT_TRUE(Says(bare, "--cast TYPE")) << bare.out;
  const ToolRun cast = JudgeTensors(dump, {"--cast", "f32"});
  EXPECT_EQ(cast.exit_code, 0) << cast.out << cast.err;
  EXPECT_TRUE(Says(cast, "bfloat16, every value of which is one of float32")) << cast.out;
  EXPECT_EQ(JudgeTensors(dump, {"--cast", "f16"}).exit_code, 2);
  const ToolRun typo = JudgeTensors(dump, {"--cast", "float23"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_TRUE(Says(typo, "did you mean 'float32'?")) << typo.err;
}

TEST_F(CaseDumps, CodesOfBfloat16InIntegersAreNamedByCast) {
  TensorMap dump = Own();
  for (auto& [path, tensor] : dump) tensor.dtype = DType::kUInt16;
  EXPECT_EQ(JudgeTensors(dump, {"--cast", "bf16"}).exit_code, 0);
}

// Numbers, or the bits of floats: nobody may guess.
TEST_F(CaseDumps, IntegersInPlaceOfFloatsAreRefusedUnlessSomebodySaysWhatTheyAre) {
  Answer("attention b=1 hq=4 hkv=2 l=3 t=7 d=32 q=f32 k=f32 v=f32 out=f32 mask=none");
  const TensorMap own = {{"/q", Of("q")}, {"/k", Of("k")}, {"/v", Of("v")}, {"/out", Of("out")}};
  EXPECT_EQ(JudgeTensors(own).exit_code, 0);
  for (const char* name : {"/q", "/v", "/out"}) {
    for (const DType dtype : {DType::kInt32, DType::kUInt32}) {
      TensorMap dump = own;
      dump.at(name).dtype = dtype;
      const ToolRun run = JudgeTensors(dump);
      EXPECT_EQ(run.exit_code, 2) << name << run.out;
      EXPECT_TRUE(Says(run, "where the integers are its codes, say so with --cast f32")) << run.out;
      EXPECT_EQ(JudgeTensors(dump, {"--cast", "f32"}).exit_code, 0);
      EXPECT_EQ(JudgeTensors(dump, {"--cast", "f16"}).exit_code, 2);
    }
  }
}

TEST_F(CaseDumps, AnswersThatNobodyAsksForAreWarnedOf) {
  TensorMap dump = Own();
  dump["/lse"] = Of("q");
  dump["/second/out"] = Of("q");
  dump["/other"] = Of("q");
  const ToolRun run = JudgeTensors(dump);
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_TRUE(Says(run, "/lse was not judged: the case asks for no 'lse'")) << run.out;
  EXPECT_TRUE(Says(run, "/second/out was not judged: 'out' is another tensor")) << run.out;
  EXPECT_TRUE(Says(run, "not looked at in dump.h5: /other\n")) << run.out;
  EXPECT_EQ(JudgeTensors(dump, {"--strict"}).exit_code, 1);
  // A choice is no oversight.
  const ToolRun chosen = JudgeTensors(dump, {"--map", "out=/out"});
  EXPECT_FALSE(Says(chosen, "'out' is another tensor")) << chosen.out;
  EXPECT_TRUE(Says(chosen, "/second/out")) << chosen.out;
}

// A right answer to more than the case says: the first line says what is missing.
TEST_F(CaseDumps, ATensorThatTheCaseLeavesOutIsReadWhereTheAnswerFails) {
  Answer(
      "attention b=1 hq=4 hkv=2 l=3 t=7 d=32 q=bf16 k=bf16 v=bf16 out=bf16 "
      "mask=causal_bottom_right sinks=f32");
  case_text_.erase(case_text_.find(" sinks=f32"), 10);
  TensorMap dump = Own();
  EXPECT_FALSE(Says(JudgeTensors(dump), "passes with"));
  dump["/s_aux"] = Stored(tensors_.at("sinks"), {0}, DType::kFloat32);
  const ToolRun run = JudgeTensors(dump);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(run.out.starts_with(
      "FAIL as asked; passes with sinks=f32 (/s_aux of the file is not in the case)  "))
      << run.out;
}

TEST_F(CaseDumps, InputsAndOutputsMayStandInTwoFiles) {
  TensorMap inputs = Own();
  const TensorMap outputs = {{"/result", inputs.at("/out")}};
  inputs.erase("/out");
  Write("inputs.h5", inputs);
  Write("outputs.h5", outputs);
  const ToolRun run = Judge({"inputs.h5", "outputs.h5"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const ToolRun swapped = Judge({"outputs.h5", "inputs.h5"});
  EXPECT_EQ(swapped.exit_code, 2);
  EXPECT_TRUE(Says(swapped, "'k', 'q', 'v' of the case are not there; present: /result"))
      << swapped.out;
  // The inputs' own output is not the one that is asked about.
  inputs["/out"] = Counting(tensors_.at("out").shape, 0, DType::kBFloat16);
  Write("inputs.h5", inputs);
  const ToolRun beside = Judge({"inputs.h5", "outputs.h5"});
  EXPECT_EQ(beside.exit_code, 0) << beside.out;
  EXPECT_TRUE(Says(beside, "note: not looked at in inputs.h5: /out")) << beside.out;
  // Nor are its inputs: other ones are said.
  TensorMap both = outputs;
  both["/q"] = inputs.at("/q");
  Write("outputs.h5", both);
  EXPECT_FALSE(Says(Judge({"inputs.h5", "outputs.h5"}), "another"));
  both["/q"] = Counting(tensors_.at("q").shape, 0, DType::kBFloat16);
  Write("outputs.h5", both);
  const ToolRun other = Judge({"inputs.h5", "outputs.h5"});
  EXPECT_TRUE(Says(other, "outputs.h5 holds another 'q' than the inputs")) << other.out;
  EXPECT_EQ(Judge({"inputs.h5", "outputs.h5"}, {"--strict"}).exit_code, 1);
  // Two files, and inputs that are generated.
  EXPECT_EQ(Tool({"compare", "inputs.h5", "outputs.h5", "--case", kAttentionCase}).exit_code, 2);
}

TEST_F(CaseDumps, NamesThatAreNotFoundAreListedWithTheMapThatMayBeMeant) {
  TensorMap dump = Own();
  dump["/my_queries"] = dump.at("/q");
  dump.erase("/q");
  const ToolRun run = JudgeTensors(dump);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(Says(run, "'q' of the case is not there; present: /k bfloat16 1x2x7x32, "))
      << run.out;
  EXPECT_TRUE(Says(run, "did you mean --map q=/my_queries?")) << run.out;
  EXPECT_EQ(JudgeTensors(dump, {"--map", "q=/my_queries"}).exit_code, 0);
  const ToolRun typo = JudgeTensors(dump, {"--map", "outt=/my_queries"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_TRUE(Says(typo, "the case has no tensor 'outt' (did you mean 'out'?)")) << typo.err;
  const ToolRun absent = JudgeTensors(dump, {"--map", "q=/my_querys"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_TRUE(Says(absent, "there is no dataset '/my_querys'; present: ")) << absent.out;
}

TEST_F(CaseDumps, TwoTensorsThatMayBeMeantAreNotChosenBetween) {
  TensorMap dump = Own();
  dump["/layers.0.query"] = dump.at("/q");
  dump["/layers.1.query"] = dump.at("/q");
  EXPECT_EQ(JudgeTensors(dump).exit_code, 0);  // its own name decides
  dump.erase("/q");
  const ToolRun run = JudgeTensors(dump);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(
      Says(run, "'q' could be /layers.0.query or /layers.1.query; choose with --map q=PATH"))
      << run.out;
}

TEST_F(CaseDumps, EveryOrderOfAxesThatTheExtentsTellIsTaken) {
  const std::vector<size_t> heads = {1, 2, 3};
  for (const bool behind : {false, true}) {
    for (const bool has_batch : {false, true}) {
      TensorMap dump;
      for (const char* name : {"q", "k", "v", "out"}) {
        const Shape& shape = tensors_.at(name).shape;
        std::vector<int64_t> extents;
        for (const size_t axis : behind ? kHeadsBehind : kOwn) {
          if (axis > 0 || has_batch) extents.push_back(shape.axes[axis].extent);
        }
        dump["/" + std::string(name)] =
            Of(name, behind ? kHeadsBehind : kOwn, DType::kFloat32, extents);
      }
      const ToolRun run = JudgeTensors(dump);
      EXPECT_EQ(run.exit_code, 0) << behind << has_batch << run.out << run.err;
    }
  }
  // All heads of a token as one axis, as projections have them.
  TensorMap dump = Own();
  dump["/out"] = Of("out", kHeadsBehind, DType::kBFloat16, {1, 3, 128});
  EXPECT_EQ(JudgeTensors(dump).exit_code, 0);
}

TEST_F(CaseDumps, OrderThatTheExtentsDoNotTellIsAskedForByItsOption) {
  Answer("attention hq=3 hkv=3 l=3 t=3 d=16 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right");
  const auto dump = [&](const std::vector<size_t>& order, const std::vector<int64_t>& extents) {
    TensorMap tensors;
    for (const char* name : {"q", "k", "v", "out"}) {
      tensors["/" + std::string(name)] = Of(name, order, DType::kFloat32, extents);
    }
    return tensors;
  };
  // Without the batch nothing is the case's own order.
  const ToolRun three = JudgeTensors(dump(kHeadsBehind, {3, 3, 16}));
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_TRUE(Says(three, "say which: --axes k=B,Hkv,T,Dk or --axes k=B,T,Hkv,Dk")) << three.out;
  EXPECT_EQ(JudgeTensors(dump(kHeadsBehind, {3, 3, 16}), {"--axes", "T,H,D"}).exit_code, 0);
  EXPECT_EQ(JudgeTensors(dump(kOwn, {3, 3, 16}), {"--axes", "H,T,D"}).exit_code, 0);
  EXPECT_EQ(JudgeTensors(dump(kOwn, {3, 3, 16}), {"--axes", "T,H,D"}).exit_code, 1);
  // With it, the case's own is taken, and the other one is said.
  const ToolRun four = JudgeTensors(dump(kOwn, {}));
  EXPECT_EQ(four.exit_code, 0) << four.out;
  EXPECT_TRUE(Says(four, "its extents can be --axes out=B,L,Hq,Dv too")) << four.out;
  const ToolRun behind = JudgeTensors(dump(kHeadsBehind, {}));
  EXPECT_EQ(behind.exit_code, 1);
  EXPECT_TRUE(Says(behind, "its extents can be --axes out=B,L,Hq,Dv too")) << behind.out;
  EXPECT_EQ(JudgeTensors(dump(kHeadsBehind, {}), {"--axes", "bthd"}).exit_code, 0);
  // One tensor otherwise than all others; what fits no tensor is an error.
  TensorMap mixed = dump(kOwn, {});
  mixed["/out"] = dump(kHeadsBehind, {}).at("/out");
  EXPECT_EQ(JudgeTensors(mixed, {"--axes", "out=B,T,H,D"}).exit_code, 0);
  EXPECT_EQ(JudgeTensors(mixed, {"--axes", "B,T,H"}).exit_code, 2);
  EXPECT_EQ(JudgeTensors(mixed, {"--axes", "output=B,T,H,D"}).exit_code, 2);
  EXPECT_EQ(JudgeTensors(mixed, {"--axes", "out=B,T,X,D"}).exit_code, 2);
  EXPECT_EQ(Tool({"compare", "dump.h5", "dump.h5", "--axes", "B,T,H,D"}).exit_code, 2);
}

TEST_F(CaseDumps, AmbiguousTensorBesideOneOfAnotherOrderIsNotGuessed) {
  // As many keys as heads, and fewer queries.
  Answer("attention b=2 hq=5 hkv=5 l=3 t=5 d=16 q=f32 k=f32 v=f32 out=f32");
  TensorMap dump;
  for (const char* name : {"q", "k", "v", "out"}) {
    dump["/" + std::string(name)] = Of(name, kHeadsBehind);
  }
  const ToolRun run = JudgeTensors(dump);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(Says(run, "and 'q' does not have the case's; say which: --axes k=")) << run.out;
  EXPECT_EQ(JudgeTensors(dump, {"--axes", "B,T,H,D"}).exit_code, 0);
}

TEST_F(CaseDumps, AttributeOfAxesDecides) {
  Answer("attention hq=3 hkv=3 l=3 t=3 d=16 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right");
  TensorMap dump;
  for (const char* name : {"q", "k", "v", "out"}) {
    Tensor tensor = Of(name, kHeadsBehind);
    const char* labels[] = {"batch", "seq", "heads", "head_dim"};
    for (size_t a = 0; a < 4; ++a) tensor.shape.axes[a].name = labels[a];
    dump["/" + std::string(name)] = tensor;
  }
  const ToolRun run = JudgeTensors(dump);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(Says(run, "q is /q: axes B,L,Hq,Dk")) << run.out;
  // The command line has the last word.
  EXPECT_EQ(JudgeTensors(dump, {"--axes", "B,H,T,D"}).exit_code, 1);
}

// safetensors has no attributes of a tensor: its metadata name the axes, of all or of one.
TEST_F(CaseDumps, MetadataOfSafetensorsNameTheAxes) {
  Answer("attention hq=3 hkv=3 l=3 t=3 d=16 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right");
  const auto judge = [&](const std::string& metadata) {
    std::string header = "{\"__metadata__\":{" + metadata + "}";
    std::string data;
    for (const char* name : {"q", "k", "v", "out"}) {
      // The output as the case has it.
      const Tensor tensor = Of(name, std::string(name) == "out" ? kOwn : kHeadsBehind);
      header += fmt::format(R"(,"{}":{{"dtype":"F32","shape":[1,3,3,16],"data_offsets":[{},{}]}})",
                            name, data.size(), data.size() + tensor.bytes.size());
      data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    golden_samples::WriteBytes(Path("dump.safetensors"),
                               golden_samples::SafetensorsBytes(header + "}", data));
    return Judge({"dump.safetensors"});
  };
  const ToolRun run = judge(R"("axes":"B,T,H,D","axes.out":"B,H,T,D")");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(Says(run, "q is /q: axes B,L,Hq,Dk")) << run.out;
  EXPECT_EQ(judge(R"("axes":"B,T,H,D")").exit_code, 1);
  EXPECT_EQ(judge(R"("format":"pt")").exit_code, 1);
}

TEST_F(CaseDumps, ShapesThatDoNotFitNameTheKeyAndTheOption) {
  for (const char* name : {"k", "out"}) {
    TensorMap dump = Own();
    const bool is_key = std::string(name) == "k";
    dump["/" + std::string(name)] =
        Counting(Shape::Unnamed(is_key ? std::vector<int64_t>{1, 4, 7, 32}
                                       : std::vector<int64_t>{1, 8, 3, 32}),
                 0, DType::kBFloat16);
    const ToolRun run = JudgeTensors(dump);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_TRUE(Says(run, is_key ? "(hkv=4 would fit)" : "(hq=8 would fit)")) << run.out;
    EXPECT_TRUE(Says(run, "no order of the axes makes one of the other")) << run.out;
  }
}

TEST_F(CaseDumps, RowsOfACodecMayBeFlatOrHaveAnyLeadingAxes) {
  case_text_ = "codec op=round_trip format=bf16 x=f32 rows=6 d=64 data=file";
  std::vector<double> values(6 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 97) - 48;
  for (const auto& extents : {std::vector<int64_t>{384}, {6, 64}, {2, 3, 64}, {1, 2, 3, 64}}) {
    const Tensor rows = Values(DType::kFloat32, Shape::Unnamed(extents), values);
    Write("rows.h5", {{"/x", rows}, {"/y", rows}});
    const ToolRun run = Tool({"compare", "rows.h5", "--case", case_text_});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    Tensor wrong = rows;
    wrong.As<float>()[100] += 8;
    Write("rows.h5", {{"/x", rows}, {"/y", wrong}});
    EXPECT_EQ(Tool({"compare", "rows.h5", "--case", case_text_}).exit_code, 1);
  }
  const Tensor rows = Values(DType::kFloat32, Shape::Unnamed({64, 6}), values);
  Write("rows.h5", {{"/x", rows}, {"/y", rows}});
  EXPECT_EQ(Tool({"compare", "rows.h5", "--case", case_text_}).exit_code, 2);
}

TEST_F(CaseDumps, GoldenFilesAreMadeOfTheSameDumps) {
  Write("dump.h5",
        {{"/query", Of("q")}, {"/key", Of("k", kHeadsBehind)}, {"/value", Of("v", kOwn)}});
  const ToolRun made =
      Tool({"golden", "make", "dump.h5", "--case", case_text_, "--name", "a", "-o", "g.h5"});
  EXPECT_EQ(made.exit_code, 0) << made.out << made.err;
  EXPECT_TRUE(Says(made, "note: k is /key: found under this name; float32, every value of which"))
      << made.out;
  const GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  for (const char* name : {"q", "k", "v"}) {
    EXPECT_EQ(file.cases[0].inputs.at(name).dtype, DType::kBFloat16);
    EXPECT_EQ(file.cases[0].inputs.at(name).bytes, tensors_.at(name).bytes) << name;
  }
}

TEST_F(CaseDumps, TwoPlansTakeTheSameDumps) {
  Write("gold.h5", {{"/query", Of("q")},
                    {"/key", Of("k")},
                    {"/value", Of("v")},
                    {"/output", Of("out", kHeadsBehind)}});
  Write("got.h5", {{"/attn_output", Of("out", kOwn, DType::kFloat64)}});
  const Texts words = {"compare", "gold.h5",   "got.h5",      "--case",   case_text_,
                       "--plan",  kHonestPlan, "--gold-plan", kHonestPlan};
  const ToolRun run = Tool(words);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(Says(run, "note: out is /attn_output")) << run.out;
}

// Values that are all alike are the same bits of any two kernels.
TEST_F(CaseDumps, EqualBitsOfABlindGoldAreSaidToBe) {
  const auto ones = [](const std::vector<int64_t>& extents) {
    const Shape shape = Shape::Unnamed(extents);
    const auto count = static_cast<size_t>(shape.ElementCount());
    return Values(DType::kFloat32, shape, std::vector<double>(count, 1));
  };
  Write("gold.h5", {{"/q", ones({1, 2, 4, 32})},
                    {"/k", ones({1, 1, 16, 32})},
                    {"/v", ones({1, 1, 16, 32})},
                    {"/out", ones({1, 2, 4, 32})}});
  Write("got.h5", {{"/out", ones({1, 2, 4, 32})}});
  case_text_ = "attention hq=2 hkv=1 l=4 t=16 d=32 q=f32 k=f32 v=f32 out=f32 data=file";
  const auto judge = [&](const Texts& more) {
    Texts all = {"--gold-plan", kHonestPlan};
    all.insert(all.end(), more.begin(), more.end());
    return Judge({"gold.h5", "got.h5"}, all);
  };
  EXPECT_EQ(judge({}).exit_code, 3);
  const ToolRun bits = judge({"--bitwise"});
  EXPECT_EQ(bits.exit_code, 0) << bits.out << bits.err;
  EXPECT_TRUE(Says(bits, "0 % of the inputs")) << bits.out;
  EXPECT_EQ(judge({"--bitwise", "--strict"}).exit_code, 1);
}

}  // namespace
}  // namespace kvcheck
