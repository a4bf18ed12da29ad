#include "tools/agree/token_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "golden/file_index.h"
#include "golden/input_file.h"
#include "golden/strict_json.h"
#include "golden/tensor_file.h"
#include "golden/text_file.h"
#include "reference/numerics/convert.h"
#include "reference/spec/dtype.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr std::string_view kBetween = " \t\r\n,";

[[noreturn]] void RefuseIds(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile,
              what + ": a JSON list of token ids, or ids one after the other, is asked for", path);
}

std::vector<int64_t> OfJson(const std::string& text, const std::string& path) {
  std::optional<std::string> twice;
  nlohmann::json ids = ParseStrictJson(text, &twice);
  if (twice) RefuseIds(fmt::format("it has the key \"{:.40}\" twice", *twice), path);
  if (ids.is_discarded()) RefuseIds("it is no JSON", path);
  if (ids.is_object()) {
    if (!ids.contains("input_ids")) RefuseIds("it has no \"input_ids\"", path);
    ids = nlohmann::json(ids["input_ids"]);
  }
  // Of one text in a batch.
  if (ids.is_array() && ids.size() == 1 && ids[0].is_array()) ids = nlohmann::json(ids[0]);
  if (!ids.is_array()) RefuseIds("it is no list", path);
  std::vector<int64_t> tokens;
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_integer()) {
      RefuseIds(fmt::format("number {} of the list is {:.40}", tokens.size(), id.dump()), path);
    }
    tokens.push_back(id.get<int64_t>());
  }
  return tokens;
}

std::vector<int64_t> OfNumbers(std::string_view text, const std::string& path) {
  std::vector<int64_t> tokens;
  size_t at = text.find_first_not_of(kBetween);
  while (at != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    int64_t token = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + end, token);
    if (read.ec != std::errc() || read.ptr != text.data() + end) {
      RefuseIds(fmt::format("'{:.40}' is no whole number", text.substr(at, end - at)), path);
    }
    tokens.push_back(token);
    at = text.find_first_not_of(kBetween, end);
  }
  return tokens;
}

// Of a file of tensors that has one, or `tokens` or `input_ids` among others.
std::vector<int64_t> OfTensors(const std::string& path) {
  const std::unique_ptr<TensorSource> file = OpenTensorFile(path, OpenArchive);
  const std::vector<ListedTensor> listed = ListTensors(file->index());
  std::string name = listed.size() == 1 ? listed.front().path : "";
  for (const char* known : {"/tokens", "/input_ids"}) {
    if (file->index().objects.count(known) > 0) name = known;
  }
  if (name.empty()) RefuseIds("it has several tensors and no `tokens` or `input_ids`", path);
  const ObjectRecord& record = DatasetRecord(*file, name);
  int64_t count = 1;
  size_t long_axes = 0;
  for (const Axis& axis : record.shape.axes) {
    count *= axis.extent;
    long_axes += axis.extent != 1 ? 1 : 0;
  }
  if (long_axes > 1 || (record.dtype != DType::kInt32 && record.dtype != DType::kInt64)) {
    RefuseIds(fmt::format("{} is {} {}, and a row of i32 or i64 is read", name.substr(1),
                          Name(record.dtype), ToString(record.shape)),
              path);
  }
  const Tensor tensor = ReadTensor(*file, name);
  std::vector<double> values(static_cast<size_t>(count));
  DecodeTo(tensor, 0, values);
  return {values.begin(), values.end()};
}

// No text has a NUL, and numpy's files begin with a byte that no number does.
bool IsOfTensors(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return true;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const InputFile file(path);
  std::array<char, 16> head{};
  const auto bytes = static_cast<size_t>(std::min<int64_t>(file.size(), head.size()));
  file.ReadAt(0, head.data(), bytes);
  const std::string_view start(head.data(), bytes);
  return start.find('\0') != std::string_view::npos || start.starts_with("\x93");
}

std::vector<int64_t> Checked(std::vector<int64_t> tokens, int64_t vocabulary,
                             const std::string& path) {
  if (tokens.empty()) throw Error(ErrorCode::kSelection, "it holds no token id", path);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("token {} is {}, and the model has {}: ids of its own tokenizer are "
                            "asked for",
                            i, tokens[i], vocabulary),
                path);
  }
  return tokens;
}

}  // namespace

std::vector<int64_t> ReadTokenIds(const std::string& path, int64_t vocabulary) {
  if (IsOfTensors(path)) return Checked(OfTensors(path), vocabulary, path);
  const std::string text = ReadWholeText(path, kMostBytes);
  const size_t first = text.find_first_not_of(kBetween);
  const bool is_json = first != std::string::npos && (text[first] == '[' || text[first] == '{');
  return Checked(is_json ? OfJson(text, path) : OfNumbers(text, path), vocabulary, path);
}

}  // namespace kvcheck
