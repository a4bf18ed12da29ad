// Files of the kinds that engines write, and what is said of two of them.

#ifndef TESTS_TOOLS_AGREE_DUMP_FILES_H_
#define TESTS_TOOLS_AGREE_DUMP_FILES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/dtype.h"
#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/measures.h"

namespace kvcheck {

using Rows = std::vector<std::vector<float>>;

template <typename Number>
void Append(Number value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Positions of logits that no two rows share.
inline Rows Drawn(size_t positions, size_t vocabulary) {
  Rows rows(positions, std::vector<float>(vocabulary));
  uint32_t state = 1;
  for (auto& row : rows) {
    for (float& logit : row) {
      state = state * 1664525U + 1013904223U;
      logit = static_cast<float>(state >> 8) * 0x1p-21F - 4;  // -4 to 4
    }
  }
  return rows;
}

class Dumps : public testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& path : paths_) std::filesystem::remove(path);
  }
  std::string Path(const std::string& name) {
    paths_.push_back(golden_samples::TemporaryPath("agree_" + name));
    return paths_.back();
  }
  std::string Safetensors(const std::string& name, const Rows& rows, bool next = true) {
    std::string data;
    for (const auto& row : rows) {
      for (const float logit : row) Append(logit, &data);
    }
    const size_t logits = data.size();
    nlohmann::json header = {{"logits",
                              {{"dtype", "F32"},
                               {"shape", {rows.size(), rows[0].size()}},
                               {"data_offsets", {0, logits}}}}};
    if (next) {
      for (size_t i = 0; i < rows.size(); ++i) Append(static_cast<int32_t>(i % 3), &data);
      header["next"] = {
          {"dtype", "I32"}, {"shape", {rows.size()}}, {"data_offsets", {logits, data.size()}}};
    }
    const std::string path = Path(name);
    golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header.dump(), data));
    return path;
  }
  // The most likely tokens alone. Shapes: ids and logits (positions, k), lse (positions).
  std::string TopK(const std::string& name, const std::vector<std::vector<int32_t>>& ids,
                   const Rows& logits, const std::vector<float>& lse,
                   const std::string& error = "0") {
    std::string data;
    for (const float value : lse) Append(value, &data);
    const size_t sums = data.size();
    for (const auto& row : ids) {
      for (const int32_t id : row) Append(id, &data);
    }
    const size_t tokens = data.size();
    for (const auto& row : logits) {
      for (const float logit : row) Append(logit, &data);
    }
    const auto shape = {ids.size(), ids[0].size()};
    const nlohmann::json header = {
        {"__metadata__", {{"error", error}}},
        {"lse", {{"dtype", "F32"}, {"shape", {lse.size()}}, {"data_offsets", {0, sums}}}},
        {"topk_ids", {{"dtype", "I32"}, {"shape", shape}, {"data_offsets", {sums, tokens}}}},
        {"topk_logits",
         {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {tokens, data.size()}}}}};
    const std::string path = Path(name);
    golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header.dump(), data));
    return path;
  }
  // As llama.cpp's log_softmax writes a row: one chunk whose second half is `rows`.
  std::string Llama(const std::string& name, const Rows& rows) {
    const auto vocabulary = static_cast<int32_t>(rows[0].size());
    const auto context = static_cast<int32_t>(2 * (rows.size() + 1));
    std::string bytes = "_logits_";
    for (const int32_t number : {context, vocabulary, 1}) Append(number, &bytes);
    for (int32_t t = 0; t < context; ++t) Append((t - context / 2 + 2) % 3, &bytes);
    for (const auto& row : rows) {
      float most = row[0], least = row[0], sum = 0;
      for (const float logit : row) most = std::max(most, logit), least = std::min(least, logit);
      least = std::max(least, most - 16);
      for (const float logit : row) sum += std::exp(logit - most);
      const float scale = (most - least) / 65535;
      Append(scale, &bytes);
      Append(least - most - std::log(sum), &bytes);
      for (const float logit : row) {
        Append(static_cast<uint16_t>(logit > least ? std::lround((logit - least) / scale) : 0),
               &bytes);
      }
      if (row.size() % 2 == 1) Append(uint16_t{0}, &bytes);
    }
    const std::string path = Path(name);
    golden_samples::WriteBytes(path, bytes);
    return path;
  }
  static std::vector<double> LogP(const std::vector<float>& row) {
    std::vector<double> log_p(row.begin(), row.end());
    const double lse = LogSumExp(log_p);
    for (double& value : log_p) value -= lse;
    return log_p;
  }
  std::string Text(const std::string& name, const std::string& text) {
    const std::string path = Path(name);
    golden_samples::WriteBytes(path, text);
    return path;
  }
  // The tokens of each position whose log-probability is at least -3.
  std::string Vllm(const std::string& name, const Rows& rows) {
    nlohmann::json array = nlohmann::json::array({nullptr});
    for (const auto& row : rows) {
      nlohmann::json entry = nlohmann::json::object();
      const std::vector<double> log_p = LogP(row);
      for (size_t i = 0; i < row.size(); ++i) {
        if (log_p[i] < -3) continue;
        entry[std::to_string(i)] = {{"logprob", log_p[i]}, {"decoded_token", "\"]},{[\\"}};
      }
      array.push_back(entry);
    }
    return Text(name, nlohmann::json{{"choices", {{{"text", "\"prompt_logprobs\": [1]"}}}},
                                     {"prompt_logprobs", array}}
                          .dump(1));
  }
  // A verdict is asked for. error: of each engine, as stated.
  static DumpReport Compare(const std::string& gold, const std::string& got,
                            std::optional<double> error = std::nullopt,
                            const std::string& noise = "") {
    DumpQuestion question;
    question.gold = gold;
    question.got = got;
    question.noise = noise;
    question.logit_error = error;
    return CompareDumps(question, {});
  }
  static DumpReport Measure(const std::string& gold, const std::string& got) {
    DumpQuestion question;
    question.gold = gold;
    question.got = got;
    question.judge = false;
    return CompareDumps(question, {});
  }
  static std::string Json(const DumpQuestion& question, const DumpReport& report) {
    GotDump got;
    got.path = question.got;
    return DumpJson(question, DumpsReport{{got}, {report}, report.interrupted});
  }
  // The first line of what a reader sees.
  static std::string FirstLine(const DumpQuestion& question, const DumpReport& report) {
    GotDump got;
    got.path = question.got;
    const std::string text = DumpText(question, DumpsReport{{got}, {report}, report.interrupted});
    return text.substr(0, text.find('\n'));
  }
  std::string Copy(const std::string& name, const std::string& path) {
    return Text(name, golden_samples::ReadBytes(path));
  }
  // Logits, rounded to bf16, f16 or f32.
  std::string Rounded(const std::string& name, const Rows& rows, DType dtype,
                      const std::string& metadata_error = "") {
    std::string data;
    for (const auto& row : rows) {
      for (const float logit : row) {
        const double value[] = {static_cast<double>(logit)};
        std::array<std::byte, 4> bytes{};
        EncodeFrom(value, dtype, bytes.data());
        data.append(reinterpret_cast<const char*>(bytes.data()), SizeInBytes(dtype));
      }
    }
    nlohmann::json header = {{"logits",
                              {{"dtype", dtype == DType::kBFloat16  ? "BF16"
                                         : dtype == DType::kFloat16 ? "F16"
                                                                    : "F32"},
                               {"shape", {rows.size(), rows[0].size()}},
                               {"data_offsets", {0, data.size()}}}}};
    if (!metadata_error.empty()) header["__metadata__"] = {{"error", metadata_error}};
    const std::string path = Path(name);
    golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header.dump(), data));
    return path;
  }
  static std::string Refusal(const std::string& gold, const std::string& got) {
    try {
      Compare(gold, got);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }
  // Every position of it. Errors: as Read.
  static void ReadAll(const std::string& path) {
    const auto dump = OpenLogitsDump(path);
    TokenDistribution position;
    while (dump->Read(&position)) {
    }
  }
  // It is refused as unreadable, with its path and what `message` says, on either side.
  static void ExpectUnreadable(const std::string& path, const std::string& message) {
    SCOPED_TRACE(path);
    try {
      ReadAll(path);
      ADD_FAILURE() << "it was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      EXPECT_EQ(error.context(), path);
      EXPECT_NE(error.message().find(message), std::string::npos) << error.message();
    }
    EXPECT_NE(Refusal(path, path), "");
  }

 private:
  std::vector<std::string> paths_;
};

}  // namespace kvcheck

#endif  // TESTS_TOOLS_AGREE_DUMP_FILES_H_
