// What FlashInfer wrote is read as the calls that were made.

#include "tools/flashinfer/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "reference/spec/error.h"
#include "tests/tools/flashinfer/dump_copy.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;
using Kind = DumpedValue::Kind;

ErrorCode CodeOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kUsage;
}

const DumpedCall& CallOf(const Dump& dump, const std::string& end) {
  const auto found =
      std::find_if(dump.calls.begin(), dump.calls.end(),
                   [&](const DumpedCall& call) { return call.folder.ends_with(end); });
  if (found == dump.calls.end()) throw Error(ErrorCode::kSelection, "no call " + end);
  return *found;
}

using DumpReader = DumpCopy;

TEST_F(DumpReader, GivesArgumentsTheNamesOfTheSignature) {
  const Dump dump = ReadDump(root());
  EXPECT_TRUE(dump.unread.empty());
  EXPECT_TRUE(dump.is_ordered);
  ASSERT_EQ(dump.calls.size(), 16U);
  const DumpedCall& decode = CallOf(dump, "single_decode_with_kv_cache_call0001");
  EXPECT_EQ(decode.function, "single_decode_with_kv_cache");
  EXPECT_EQ(decode.object, "");
  EXPECT_EQ(decode.version, "0.7.2.post1");
  EXPECT_EQ(decode.state, DumpedCall::State::kFinished);
  EXPECT_EQ(decode.arguments.at("q").kind, Kind::kTensor);
  EXPECT_EQ(decode.arguments.at("q").text, "arg_0");
  EXPECT_EQ(decode.arguments.at("kv_layout").text, "HND");   // by position
  EXPECT_EQ(decode.arguments.at("window_left").number, 20);  // by name
  EXPECT_TRUE(decode.arguments.at("return_lse").flag);
  EXPECT_EQ(decode.outputs, (std::set<std::string>{"result_0", "result_1"}));
  // K and V of a tuple are tensors inside of one argument.
  const DumpedCall& run = CallOf(dump, "BatchDecodeWithPagedKVCacheWrapper.run_call0001");
  const DumpedValue& cache = run.arguments.at("paged_kv_cache");
  ASSERT_EQ(cache.items.size(), 2U);
  EXPECT_EQ(cache.items[1].text, "arg_2__1");
  // plan() and run() of one object.
  EXPECT_NE(run.object, "");
  EXPECT_EQ(run.object, CallOf(dump, "BatchDecodeWithPagedKVCacheWrapper.plan_call0001").object);
  EXPECT_NE(run.object, CallOf(dump, "BatchPrefillWithPagedKVCacheWrapper.plan_call0001").object);
}

TEST_F(DumpReader, TakesTheOrderFromTheSessionWhereItIsThere) {
  const std::string second = Folder("BatchPrefillWithPagedKVCacheWrapper.plan_call0002");
  const std::string name = std::filesystem::path(second).filename().string();
  // A name that sorts before all others.
  const std::string early = "20250101" + name.substr(8);
  std::filesystem::rename(second, root() + "/" + early);
  EXPECT_FALSE(ReadDump(root()).is_ordered);
  EXPECT_EQ(ReadDump(root()).calls.front().folder, early);
  std::string session = golden_samples::ReadBytes(root() + "/session.jsonl");
  for (size_t at = 0; (at = session.find(name, at)) != std::string::npos;) {
    session.replace(at, name.size(), early);
  }
  golden_samples::WriteBytes(root() + "/session.jsonl", session);
  const Dump dump = ReadDump(root());
  EXPECT_TRUE(dump.is_ordered);
  EXPECT_NE(dump.calls.front().folder, early);
}

TEST_F(DumpReader, TakesEachReplayOfAGraphForACall) {
  const std::string call = Folder("single_decode_with_kv_cache_call0001");
  std::filesystem::create_directories(call + "/graph_flushes");
  for (const char* flush : {"/graph_flushes/flush_0001", "/graph_flushes/flush_0002"}) {
    std::filesystem::create_directories(call + flush);
    for (const char* file : {"/metadata.jsonl", "/inputs.safetensors", "/outputs.safetensors"}) {
      std::filesystem::copy(call + file, call + flush + file);
    }
  }
  const Dump dump = ReadDump(root());
  EXPECT_EQ(dump.calls.size(), 17U);
  EXPECT_TRUE(CallOf(dump, "call0001/graph_flushes/flush_0002").is_replay);
}

TEST_F(DumpReader, ListsCallsThatItCannotReadWithTheReason) {
  const struct {
    const char* text;
    const char* reason;
  } kRecords[] = {{"", "is empty"},
                  {"\n \n", "is empty"},
                  {"{\"function_name\": ", "no JSON"},
                  {"[1, 2]", "no object"},
                  {"null", "no object"},
                  {"{}", "function_name"},
                  {"{\"function_name\": 3}", "function_name"},
                  {"{\"function_name\": \"f\", \"function_signature\": \"f\"}", "signature"}};
  const std::string path = Folder("rmsnorm_call0001") + "/metadata.jsonl";
  for (const auto& record : kRecords) {
    golden_samples::WriteBytes(path, record.text);
    const Dump dump = ReadDump(root());
    EXPECT_EQ(dump.calls.size(), 15U);
    ASSERT_EQ(dump.unread.size(), 1U) << record.text;
    EXPECT_THAT(dump.unread[0].reason, HasSubstr(record.reason)) << record.text;
    EXPECT_EQ(dump.unread[0].function, "rmsnorm");
  }
  // Nested deeper than anything that FlashInfer writes.
  std::string deep = "null";
  for (int i = 0; i < 100; ++i) deep = "{\"type\": \"tuple\", \"items\": [" + deep + "]}";
  golden_samples::WriteBytes(
      path,
      "{\"function_name\": \"f\", \"function_signature\": \"(a)\", \"tensor_format\": "
      "\"safetensors\", \"execution_status\": \"completed\", \"tensor_info\": "
      "{\"input_tensor_keys\": [], \"output_tensor_keys\": []}, \"versions\": {}, "
      "\"input_metadata\": {\"arg_0\": " +
          deep + "}}");
  EXPECT_THAT(ReadDump(root()).unread.at(0).reason, HasSubstr("nested too deep"));
  std::filesystem::remove(path);
  EXPECT_TRUE(ReadDump(root()).unread.at(0).is_empty);
}

TEST_F(DumpReader, RefusesFoldersThatAreNoDump) {
  EXPECT_EQ(CodeOf([&] { ReadDump(root() + "/missing"); }), ErrorCode::kUnreadableFile);
  EXPECT_EQ(CodeOf([&] { ReadDump(root() + "/session.jsonl"); }), ErrorCode::kUnreadableFile);
  EXPECT_EQ(CodeOf([&] { ReadDump(Folder("rmsnorm_call0001")); }), ErrorCode::kUsage);
  std::filesystem::create_directories(root() + "/empty");
  EXPECT_EQ(CodeOf([&] { ReadDump(root() + "/empty"); }), ErrorCode::kSelection);
}

}  // namespace
}  // namespace kvcheck
