// Calls of a dump get the verdict that their answers deserve, and hostile dumps an error.

#include "tools/flashinfer/judge_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "reference/spec/error.h"
#include "tests/tools/flashinfer/dump_copy.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;

// Keeps results as RunReport fills them.
class Kept : public ResultSink {
 public:
  void Begin(int64_t) override {}
  bool Judge(CaseResult result, const std::function<Verdict()>& evaluate) override {
    try {
      result.verdict = evaluate();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnreadableFile) throw;
      result.verdict = WithoutJudging(
          error.code() == ErrorCode::kUnsupported ? Outcome::kUnsupported : Outcome::kIllegalCase,
          error.context() + ": " + error.message());
    }
    results.push_back(std::move(result));
    return true;
  }
  void Add(const CaseResult& result) override { results.push_back(result); }
  void AddNote(std::string note) override { notes.push_back(std::move(note)); }
  void SetInterrupted() override {}
  void AddCampaign(CampaignCounts) override {}
  void SetTensors(const TensorCounts&) override {}
  void SetPatterns(std::vector<std::string>) override {}

  std::vector<CaseResult> results;
  std::vector<std::string> notes;
};

Kept Judged(const std::string& folder, std::vector<std::string> include = {}) {
  FlashInferQuestion question;
  question.folder = folder;
  question.include = std::move(include);
  Kept kept;
  JudgeDump(question, &kept);
  return kept;
}

Verdict VerdictOf(const std::string& folder, const std::string& glob) {
  const Kept kept = Judged(folder, {glob});
  if (kept.results.size() != 1) throw Error(ErrorCode::kSelection, "not one result for " + glob);
  return kept.results[0].verdict;
}

std::string ReasonOf(const Verdict& verdict) {
  return verdict.reasons.empty() ? "" : verdict.reasons[0];
}

constexpr const char* kPagedRun = "*BatchPrefillWithPagedKVCacheWrapper.run_call0001";
constexpr const char* kPagedPlan = "BatchPrefillWithPagedKVCacheWrapper.plan_call0001";
constexpr const char* kRaggedRun = "*BatchPrefillWithRaggedKVCacheWrapper.run_call0001";

TEST(StoredDump, RightAnswersPassAndOtherFunctionsAreCounted) {
  const Kept kept = Judged(std::string(KVCHECK_DUMPS) + "/flashinfer");
  ASSERT_EQ(kept.results.size(), 8U);
  for (const CaseResult& result : kept.results) {
    const bool is_other = result.name == "rmsnorm";
    EXPECT_EQ(result.verdict.outcome, is_other ? Outcome::kUnsupported : Outcome::kPass)
        << result.name << ReasonOf(result.verdict);
    if (is_other) {
      EXPECT_THAT(ReasonOf(result.verdict), HasSubstr("2 calls"));
      continue;
    }
    // The kernel that the arguments name.
    const bool is_prefill = result.name.find("refill") != std::string::npos;
    EXPECT_THAT(result.verdict.plan,
                HasSubstr(is_prefill ? "name=flashinfer_prefill " : "name=flashinfer_decode "))
        << result.name;
  }
  EXPECT_EQ(kept.notes.size(), 6U);  // one for each __init__ and plan
}

TEST(StoredDump, WrongAnswersFailWhereTheyAreWrong) {
  const std::string folder = std::string(KVCHECK_DUMPS) + "/flashinfer_faults";
  const auto outcomes = [&](const std::string& number) {
    std::map<std::string, Outcome> found;
    const Verdict verdict = VerdictOf(folder, "*.run_call000" + number);
    for (const OutputVerdict& output : verdict.outputs) found[output.name] = output.outcome;
    EXPECT_EQ(verdict.outcome, Outcome::kFail);
    return found;
  };
  using Found = std::map<std::string, Outcome>;
  const Outcome p = Outcome::kPass, f = Outcome::kFail;
  const std::string a = "sequence 0: ", b = "sequence 1: ";
  // Two pages of sequence 1 exchanged; the last page of sequence 0 a token short; no causal mask;
  // log-sum-exp in base e.
  EXPECT_EQ(outcomes("1"), (Found{{a + "out", p}, {a + "lse", p}, {b + "out", f}, {b + "lse", f}}));
  EXPECT_EQ(outcomes("2"), (Found{{a + "out", f}, {a + "lse", f}, {b + "out", p}, {b + "lse", p}}));
  EXPECT_EQ(outcomes("3"), (Found{{a + "out", f}, {a + "lse", f}, {b + "out", f}, {b + "lse", f}}));
  EXPECT_EQ(outcomes("4"), (Found{{a + "out", p}, {a + "lse", f}, {b + "out", p}, {b + "lse", f}}));
  EXPECT_EQ(VerdictOf(folder, "single_decode*").outcome, Outcome::kCrashed);
}

using JudgedDump = DumpCopy;

TEST_F(JudgedDump, ArgumentsDecide) {
  const struct {
    const char* call;
    const char* glob;
    const char* from;
    const char* to;
  } kChanges[] = {
      {"single_prefill_with_kv_cache_call0001", "*single_prefill*call0001",
       "\"kwarg_causal\": true", "\"kwarg_causal\": false"},
      {"single_prefill_with_kv_cache_call0001", "*single_prefill*call0001",
       "\"kwarg_sm_scale\": 0.125", "\"kwarg_sm_scale\": 0.25"},
      {"single_decode_with_kv_cache_call0001", "single_decode*", "\"kwarg_window_left\": 20",
       "\"kwarg_window_left\": 19"},
      {"single_decode_with_kv_cache_call0001", "single_decode*", "\"kwarg_logits_soft_cap\": 30.0",
       "\"kwarg_logits_soft_cap\": 3.0"},
      {"BatchDecodeWithPagedKVCacheWrapper.run_call0001", "*Decode*.run", "\"kwarg_k_scale\": 0.75",
       "\"kwarg_k_scale\": 0.5"},
      {"BatchDecodeWithPagedKVCacheWrapper.run_call0001", "*Decode*.run", "\"kwarg_v_scale\": 0.3",
       "\"kwarg_v_scale\": 0.25"},
      {kPagedPlan, kPagedRun, "\"kwarg_window_left\": 6", "\"kwarg_window_left\": 5"},
  };
  for (const auto& change : kChanges) {
    Replace(change.call, "metadata.jsonl", change.from, change.to);
    EXPECT_EQ(VerdictOf(root(), change.glob).outcome, Outcome::kFail) << change.to;
    Replace(change.call, "metadata.jsonl", change.to, change.from);
    EXPECT_EQ(VerdictOf(root(), change.glob).outcome, Outcome::kPass) << change.from;
  }
}

TEST_F(JudgedDump, WhatIsNotUnderstoodIsUnsupported) {
  const struct {
    const char* from;
    const char* to;
    const char* reason;
  } kChanges[] = {
      {"\"kwarg_causal\": true", "\"kwarg_causal\": true, \"kwarg_tree\": 3", "'tree'"},
      {"\"kwarg_causal\": true", "\"kwarg_causal\": \"yes\"", "a text"},
      {"\"kwarg_causal\": true", "\"kwarg_causal\": true, \"kwarg_pos_encoding_mode\": \"ALIBI\"",
       "pos_encoding_mode"},
      {"\"kwarg_causal\": true", "\"kwarg_causal\": true, \"kwarg_use_fp16_qk_reduction\": true",
       "use_fp16_qk_reduction"},
  };
  const std::string call = "single_prefill_with_kv_cache_call0001";
  for (const auto& change : kChanges) {
    Replace(call, "metadata.jsonl", change.from, change.to);
    const Verdict verdict = VerdictOf(root(), "*single_prefill*call0001");
    EXPECT_EQ(verdict.outcome, Outcome::kUnsupported) << change.to;
    EXPECT_THAT(ReasonOf(verdict), HasSubstr(change.reason));
    Replace(call, "metadata.jsonl", change.to, change.from);
  }
  std::filesystem::remove_all(Folder("BatchPrefillWithRaggedKVCacheWrapper.plan_call0001"));
  EXPECT_THAT(ReasonOf(VerdictOf(root(), kRaggedRun)), HasSubstr("plan()"));
}

TEST_F(JudgedDump, AMethodWithoutItsObjectIsUnsupported) {
  const std::string call = "BatchPrefillWithRaggedKVCacheWrapper.run_call0001";
  Replace(call, "metadata.jsonl", "\"self_id\"", "\"id_of_nothing\"");
  const Verdict verdict = VerdictOf(root(), kRaggedRun);
  EXPECT_EQ(verdict.outcome, Outcome::kUnsupported);
  EXPECT_THAT(ReasonOf(verdict), HasSubstr("no self_id"));
  // Of all calls, as a dump of two wrappers might be: the plan may be the other one's.
  for (const char* other : {"BatchPrefillWithRaggedKVCacheWrapper.plan_call0001",
                            "BatchPrefillWithRaggedKVCacheWrapper.__init___call0001"}) {
    Replace(other, "metadata.jsonl", "\"self_id\"", "\"id_of_nothing\"");
  }
  EXPECT_EQ(VerdictOf(root(), kRaggedRun).outcome, Outcome::kUnsupported);
  // A plan of nobody may be that of any wrapper that was there before.
  Replace(call, "metadata.jsonl", "\"id_of_nothing\"", "\"self_id\"");
  Replace("BatchPrefillWithRaggedKVCacheWrapper.__init___call0001", "metadata.jsonl",
          "\"id_of_nothing\"", "\"self_id\"");
  EXPECT_THAT(ReasonOf(VerdictOf(root(), kRaggedRun)), HasSubstr("may have changed the wrapper"));
}

TEST_F(JudgedDump, ACallThatIsNotUnderstoodMakesTheWrapperUnknown) {
  const std::string plan = Folder("BatchPrefillWithRaggedKVCacheWrapper.plan_call0001");
  const std::string later =
      root() +
      "/20260101_000026_000_pid1_BatchPrefillWithRaggedKVCacheWrapper.begin_forward_call0001";
  std::filesystem::copy(plan, later);
  Replace("begin_forward_call0001", "metadata.jsonl", "KVCacheWrapper.plan\"",
          "KVCacheWrapper.begin_forward\"");
  Verdict verdict = VerdictOf(root(), kRaggedRun);
  EXPECT_EQ(verdict.outcome, Outcome::kUnsupported);
  EXPECT_THAT(ReasonOf(verdict),
              HasSubstr("begin_forward was called on the wrapper behind its plan"));
  EXPECT_EQ(VerdictOf(root(), kPagedRun).outcome, Outcome::kPass);
  // The same of a call that cannot be read, also where FlashInfer could not write it.
  for (const char* text : {"{", ""}) {
    golden_samples::WriteBytes(later + "/metadata.jsonl", text);
    EXPECT_THAT(ReasonOf(VerdictOf(root(), kRaggedRun)), HasSubstr("cannot be read")) << text;
  }
  std::filesystem::remove(later + "/metadata.jsonl");
  EXPECT_EQ(VerdictOf(root(), kRaggedRun).outcome, Outcome::kUnsupported);
  // Before the plan that is known it changes nothing.
  std::filesystem::rename(
      later,
      root() +
          "/20260101_000024_000_pid1_BatchPrefillWithRaggedKVCacheWrapper.begin_forward_call0001");
  EXPECT_EQ(VerdictOf(root(), kRaggedRun).outcome, Outcome::kPass);
}

TEST_F(JudgedDump, AnArgumentThatIsThereTwiceIsIllegal) {
  Replace("single_prefill_with_kv_cache_call0001", "metadata.jsonl", "\"kwarg_causal\": true",
          "\"kwarg_causal\": false, \"kwarg_causal\": true");
  const Verdict verdict = VerdictOf(root(), "*single_prefill*call0001");
  EXPECT_EQ(verdict.outcome, Outcome::kIllegalCase);
  EXPECT_THAT(ReasonOf(verdict), HasSubstr("has the key 'kwarg_causal' twice"));
}

TEST_F(JudgedDump, RunsWithoutInitAreReadByTheShapeOfTheirPages) {
  std::filesystem::remove_all(Folder("BatchPrefillWithPagedKVCacheWrapper.__init___call0001"));
  EXPECT_EQ(VerdictOf(root(), kPagedRun).outcome, Outcome::kPass);
}

TEST_F(JudgedDump, PackedMasksHaveEightElementsAByteTheLowestBitFirst) {
  const std::string call = "single_prefill_with_kv_cache_call0002";
  const std::string glob = "*single_prefill*call0002";
  const std::string path = Folder(call) + "/inputs.safetensors";
  const std::string bytes = golden_samples::ReadBytes(path);
  constexpr size_t kElements = 5 * 19, kPacked = 12;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  std::string header = bytes.substr(8, header_bytes);
  const std::string before =
      bytes.substr(8 + header_bytes, bytes.size() - 8 - header_bytes - kElements);
  std::string packed(kPacked, '\0');
  for (size_t i = 0; i < kElements; ++i) {
    if (bytes[bytes.size() - kElements + i] != 0) {
      packed[i / 8] = static_cast<char>(packed[i / 8] | 1 << i % 8);
    }
  }
  const std::string start = std::to_string(before.size());
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = header.find(from);
    ASSERT_NE(at, std::string::npos) << from << " is not in " << header;
    header.replace(at, from.size(), to);
  };
  replace("\"kwarg_custom_mask\":{\"dtype\":\"BOOL\",\"shape\":[5,19],\"data_offsets\":[" + start +
              "," + std::to_string(before.size() + kElements) + "]}",
          "\"kwarg_packed_custom_mask\":{\"dtype\":\"U8\",\"shape\":[12],\"data_offsets\":[" +
              start + "," + std::to_string(before.size() + kPacked) + "]}");
  Replace(call, "metadata.jsonl", "\"kwarg_custom_mask\"", "\"kwarg_packed_custom_mask\"");
  golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header, before + packed));
  EXPECT_EQ(VerdictOf(root(), glob).outcome, Outcome::kPass);
  packed[0] = static_cast<char>(packed[0] ^ 2);  // key 1 of query 0
  golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header, before + packed));
  EXPECT_EQ(VerdictOf(root(), glob).outcome, Outcome::kFail);
}

// Writes an i32 over an element of a table, wherever the file has these elements in a row.
void Poke(const std::string& path, const std::vector<int32_t>& table, size_t at, int32_t value) {
  std::string bytes = golden_samples::ReadBytes(path);
  const std::string pattern(reinterpret_cast<const char*>(table.data()), table.size() * 4);
  const size_t found = bytes.find(pattern);
  ASSERT_NE(found, std::string::npos);
  std::memcpy(bytes.data() + found + at * 4, &value, 4);
  golden_samples::WriteBytes(path, bytes);
}

// A kernel that never ran leaves the zeros that are right there.
TEST_F(JudgedDump, WithoutAKeyNothingIsProved) {
  const std::string plan = Folder(kPagedPlan) + "/inputs.safetensors";
  Poke(plan, {0, 2, 5}, 1, 0);
  Poke(plan, {0, 0, 5}, 2, 0);
  Poke(plan, {3, 2}, 1, 0);  // ends of last pages
  Poke(plan, {3, 0}, 0, 0);
  const std::string path =
      Folder("BatchPrefillWithPagedKVCacheWrapper.run_call0001") + "/outputs.safetensors";
  std::string out = golden_samples::ReadBytes(path);
  const size_t header =
      8 + static_cast<unsigned char>(out[0]) + 256UL * static_cast<unsigned char>(out[1]);
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(header), out.end(), '\0');
  golden_samples::WriteBytes(path, out);
  const Verdict verdict = VerdictOf(root(), kPagedRun);
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted) << ReasonOf(verdict);
}

TEST_F(JudgedDump, TablesThatPointOutsideAreIllegal) {
  const std::string path = Folder(kPagedPlan) + "/inputs.safetensors";
  const std::string right = golden_samples::ReadBytes(path);
  const std::vector<int32_t> starts = {0, 2, 5}, pages = {5, 1, 4, 0, 2}, last = {3, 2};
  for (const int32_t absurd : {-1, 6, 7, 1 << 30, -2147483647 - 1, 2147483647}) {
    for (size_t at = 0; at < pages.size(); ++at) {
      if (absurd >= 0 && absurd < 6) continue;
      Poke(path, pages, at, absurd);
      EXPECT_EQ(VerdictOf(root(), kPagedRun).outcome, Outcome::kIllegalCase) << absurd;
      golden_samples::WriteBytes(path, right);
    }
    for (size_t at = 0; at < starts.size(); ++at) {
      Poke(path, starts, at, absurd);
      EXPECT_EQ(VerdictOf(root(), kPagedRun).outcome, Outcome::kIllegalCase) << absurd;
      golden_samples::WriteBytes(path, right);
    }
    Poke(path, last, 1, absurd);
    EXPECT_EQ(VerdictOf(root(), kPagedRun).outcome, Outcome::kIllegalCase) << absurd;
    golden_samples::WriteBytes(path, right);
  }
  EXPECT_EQ(VerdictOf(root(), kPagedRun).outcome, Outcome::kPass);
}

TEST_F(JudgedDump, DamagedFilesAreIllegalAndOthersAreJudged) {
  const std::string path = Folder("single_prefill_with_kv_cache_call0001") + "/inputs.safetensors";
  const std::string right = golden_samples::ReadBytes(path);
  for (size_t length = 0; length < right.size(); length = length < 12 ? length + 1 : length * 2) {
    golden_samples::WriteBytes(path, right.substr(0, length));
    EXPECT_EQ(VerdictOf(root(), "*single_prefill*call0001").outcome, Outcome::kIllegalCase)
        << length;
  }
  std::filesystem::remove(path);
  const Kept kept = Judged(root());
  EXPECT_EQ(std::count_if(
                kept.results.begin(), kept.results.end(),
                [](const CaseResult& result) { return result.verdict.outcome == Outcome::kPass; }),
            6);
}

TEST_F(JudgedDump, FilesOfTorchSaveAreRefusedWithWhatToDo) {
  Replace("single_decode_with_kv_cache_call0001", "metadata.jsonl",
          "\"tensor_format\": \"safetensors\"", "\"tensor_format\": \"torch\"");
  try {
    Judged(root());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.message(), HasSubstr("FLASHINFER_DUMP_SAFETENSORS=1"));
  }
  EXPECT_EQ(VerdictOf(root(), kRaggedRun).outcome, Outcome::kPass);
}

}  // namespace
}  // namespace kvcheck
