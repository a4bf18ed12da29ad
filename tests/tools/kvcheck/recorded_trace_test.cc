// Golden traces of mlx-lm: each is judged as it stands, any change of what a query saw or of a
// stored byte is found, and the commands treat the file as any golden file.

#include <gtest/gtest.h>

#include "golden/reader.h"
#include "golden/trace_recording.h"
#include "golden/writer.h"
#include "reference/spec/error.h"
#include "tests/tools/kvcheck/tool_process.h"
#include "tools/corridor/judge_trace.h"
#include "tools/corridor/recorded_cache.h"

namespace kvcheck {
namespace {

const std::string kTraces = std::string(KVCHECK_SOURCE_DIR) + "/golden/data/mlx_lm_traces.h5";

struct Recorded {
  CacheCase c;
  TensorMap outputs;
  CacheCapabilities capabilities;
};

Recorded ReadRecorded(const std::string& name) {
  static GoldenReader reader = GoldenReader::Open(kTraces);
  const GoldenCase golden = reader.ReadCase(name);
  Recorded recorded;
  recorded.c = ParseCacheCase(golden.case_text);
  recorded.outputs = golden.observed.at(0).outputs;
  ParseRecordedProfile(golden.observed.at(0).profile, &recorded.capabilities);
  return recorded;
}

Verdict Judge(const Recorded& recorded) {
  const TraceRecording recording(recorded.c, recorded.outputs, "recording");
  RecordedCacheFactory factory(recorded.c, recording, recorded.capabilities);
  return EvaluateCacheCase(recorded.c, &factory);
}

// Without columns of padding: whatever a query sees is judged.
constexpr const char* kWithoutPadding[] = {
    "single.f32", "window.linear", "ring.chunks",
    "keep.steps", "chunk.chunks",  "batch_ring.chunks",
    "ring.trim",  "quantized.b4",  "batch.merge_and_extract"};

TEST(RecordedTrace, EveryBitOfAVisibleSetMatters) {
  for (const char* name : kWithoutPadding) {
    Recorded recorded = ReadRecorded(name);
    ASSERT_EQ(Judge(recorded).outcome, Outcome::kPass) << name;
    std::vector<std::byte>& bits = recorded.outputs.at("visible").bytes;
    ASSERT_FALSE(bits.empty());
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] ^= std::byte{1};
      ASSERT_EQ(Judge(recorded).outcome, Outcome::kFail) << name << " bit " << i;
      bits[i] ^= std::byte{1};
    }
  }
}

TEST(RecordedTrace, EveryByteThatAQuerySeesMatters) {
  constexpr int64_t kFields = 12;
  for (const char* name : {"single.f32", "ring.chunks"}) {
    Recorded recorded = ReadRecorded(name);
    const int64_t heads = recorded.c.setup.kv_heads;
    for (const auto& [part, dim] :
         {std::pair{"k", recorded.c.setup.k_dim}, std::pair{"v", recorded.c.setup.v_dim}}) {
      const Tensor states = recorded.outputs.at("states");
      std::vector<std::byte>& bytes = recorded.outputs.at(part).bytes;
      size_t at = 0;
      int64_t judged = 0;
      for (int64_t s = 0; s < states.shape.axes[0].extent; ++s) {
        const int64_t* state = states.As<int64_t>() + s * kFields;
        const auto size = static_cast<size_t>(state[0] * heads * state[1] * dim * 4);
        // After an append some query sees each column; a probe's column is nobody's.
        for (size_t i = at; state[2] > 0 && i < at + size; ++i, ++judged) {
          bytes[i] ^= std::byte{1};
          ASSERT_EQ(Judge(recorded).outcome, Outcome::kFail) << name << " " << part << " " << i;
          bytes[i] ^= std::byte{1};
        }
        at += size;
      }
      EXPECT_EQ(at, bytes.size());
      EXPECT_GT(judged, 0);
    }
  }
}

TEST(RecordedTrace, AnswersAndNumbersMatter) {
  const auto outcome = [](const std::string& name, const char* table, size_t at, int64_t value) {
    Recorded recorded = ReadRecorded(name);
    recorded.outputs.at(table).As<int64_t>()[at] = value;
    return Judge(recorded).outcome;
  };
  // single.f16.k_and_v_differ: new, append 5, trim 2, ...
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "answers", 7, 2), Outcome::kPass);
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "answers", 7, 1), Outcome::kFail);
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "answers", 6, 2), Outcome::kFail);
  // Declined, and trimmed all the same.
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "answers", 6, 3), Outcome::kFail);
  // A call that the recording does not know of is no pass, and no failure of the library.
  EXPECT_THROW(outcome("single.f16.k_and_v_differ", "answers", 6, 0), Error);
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "answers", 5, 1),
            Outcome::kFail);  // input changed
  EXPECT_EQ(outcome("single.attend", "answers", 8, 1), Outcome::kFail);
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "states", 12 + 6, 4), Outcome::kFail);  // size
  EXPECT_EQ(outcome("single.f16.k_and_v_differ", "rows", 2, 4), Outcome::kFail);  // an offset
}

TEST(RecordedTrace, TheProfileHasFieldsOfBothKinds) {
  CacheCapabilities capabilities;
  ParseRecordedProfile("size=columns decode=two_roundings trim=shorter", &capabilities);
  EXPECT_EQ(capabilities.cache_profile.size, SizeRule::kColumns);
  EXPECT_EQ(capabilities.cache_profile.trim, TrimRule::kShorter);
  EXPECT_EQ(Print(capabilities.profile), "decode=two_roundings");
  ParseRecordedProfile("", &capabilities);
  EXPECT_EQ(capabilities.cache_profile, CacheProfile());
  EXPECT_THROW(ParseRecordedProfile("size=columns nonsense=1", &capabilities), Error);
}

class TracesCommand : public ToolTest {};

TEST_F(TracesCommand, VerifyJudgesEveryTraceAndFindsEveryFinding) {
  const ToolRun run = Tool({"golden", "verify", kTraces, "-q"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const ToolRun one = Tool({"golden", "verify", kTraces, "--only", "ring.steps"});
  EXPECT_TRUE(one.out.starts_with("PASS  ring.steps/mlx_lm  8 operations")) << one.out;
}

TEST_F(TracesCommand, RunShowsOne) {
  const ToolRun pass = Tool({"run", "--data", kTraces + "#keep.steps"});
  EXPECT_EQ(pass.exit_code, 0) << pass.out << pass.err;
  const ToolRun fail = Tool({"run", "--data", kTraces + "#finding.rotated_batch_then_chunk"});
  EXPECT_EQ(fail.exit_code, 1) << fail.out << fail.err;
  EXPECT_NE(fail.out.find("operation 7, append C 2: C: row 1: query 0 (position 3) does not see"),
            std::string::npos)
      << fail.out;
  // The same trace on an implementation that is here.
  const ToolRun optimized =
      Tool({"run", "--data", kTraces + "#finding.rotated_batch_then_chunk", "--impl", "optimized"});
  EXPECT_EQ(optimized.exit_code, 0) << optimized.out << optimized.err;
}

TEST_F(TracesCommand, ShowListsOperationsWithTheirAnswers) {
  const ToolRun run = Tool({"golden", "show", kTraces, "single.trim_to_nothing"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("       5  trim A 9: 3 gone\n"), std::string::npos) << run.out;
  const ToolRun raised = Tool({"golden", "show", kTraces, "finding.filter_to_nothing"});
  EXPECT_NE(raised.out.find("filter A: refused: ValueError"), std::string::npos) << raised.out;
}

TEST_F(TracesCommand, CompareJudgesTheRecordingOfTheOtherFile) {
  const ToolRun same = Tool({"compare", kTraces, kTraces, "--only", "batch*"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  GoldenFile file;
  GoldenReader reader = GoldenReader::Open(kTraces);
  file.source = "test";
  file.command = "test";
  file.cases.push_back(reader.ReadCase("ring.steps"));
  file.cases[0].observed[0].outputs.at("visible").bytes[0] ^= std::byte{1};
  WriteGoldenFile(Path("changed.h5"), file);
  const ToolRun changed = Tool({"compare", kTraces, "changed.h5", "--only", "ring.steps"});
  EXPECT_EQ(changed.exit_code, 1) << changed.out;
  EXPECT_EQ(Tool({"golden", "verify", "changed.h5"}).exit_code, 1);
  const ToolRun missing = Tool({"compare", kTraces, "changed.h5", "--only", "ring.trim"});
  EXPECT_EQ(missing.exit_code, 1) << missing.out;
  EXPECT_NE(missing.out.find("missing"), std::string::npos) << missing.out;
}

TEST_F(TracesCommand, WhatIsNoRecordingIsAnUnreadableFile) {
  GoldenFile file;
  GoldenReader reader = GoldenReader::Open(kTraces);
  file.source = "test";
  file.command = "test";
  file.cases.push_back(reader.ReadCase("ring.steps"));
  file.cases[0].observed[0].outputs.erase("slots");
  WriteGoldenFile(Path("torn.h5"), file);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"golden", "verify", "torn.h5"},
        {"run", "--data", "torn.h5#ring.steps"},
        {"golden", "show", "torn.h5", "ring.steps"},
        {"compare", kTraces, "torn.h5", "--only", "ring.steps"}}) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments[0] << run.out << run.err;
    EXPECT_NE(run.err.find("'slots' is missing"), std::string::npos) << run.err;
  }
}

TEST_F(TracesCommand, NoExpectedValuesAreMadeOfATrace) {
  const ToolRun run = Tool({"golden", "make", kTraces, "-o", "made.h5"});
  EXPECT_NE(run.exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(Path("made.h5")));
  EXPECT_NE((run.out + run.err).find("a cache case is a list of operations"), std::string::npos)
      << run.err;
}

TEST_F(TracesCommand, TracesSaveToFiles) {
  const std::string trace =
      "cache layout=ring:w=4:keep=1 k=affine:4:g32:f16 x=f16 dk=32 data=tokens:1; "
      "new A rows=2 pad=1,0; append A 6; load s1 -> B; save A s1; load s1 -> B; append B 2; "
      "damage s1 flip at=700; load s1 -> C; damage s1 flip at=700; load s1 -> C; append C 1; "
      "damage s1 truncate; load s1 -> C; append C 1; save C s1; load s1 -> D; append D 1; "
      "damage s1 version; load s1 -> D; save C s2; damage s2 foreign; load s2 -> D; append D 1";
  for (const char* impl : {"optimized", "model"}) {
    const ToolRun run = Tool({"run", trace, "--impl", impl, "--store", "hdf5"});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_NE(run.out.find("5 illegal and refused"), std::string::npos) << run.out;
  }
  // No store helps a cache that takes whole files of a version that it does not know.
  const ToolRun fault = Tool({"run", trace, "--impl", "fault:load_any_version", "--store", "hdf5"});
  EXPECT_EQ(fault.exit_code, 1) << fault.out << fault.err;
  EXPECT_EQ(Tool({"run", trace, "--store", "nowhere"}).exit_code, 2);
  EXPECT_EQ(Tool({"run", "--data", kTraces + "#single.files", "--store", "hdf5"}).exit_code, 2);
}

}  // namespace
}  // namespace kvcheck
