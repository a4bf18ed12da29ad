#include "tools/agree/token_texts.h"

#include <map>
#include <mutex>
#include <vector>

#include "golden/safetensors_header.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, int64_t> tokens;
  std::vector<std::string> texts;
};

Table& TheTable() {
  static Table table;
  return table;
}

}  // namespace

int64_t TextToken(const std::string& text) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  const auto next = kFirstTextToken + static_cast<int64_t>(table.texts.size());
  const auto [found, is_new] = table.tokens.emplace(text, next);
  if (is_new) table.texts.push_back(text);
  return found->second;
}

std::string TokenName(int64_t token) {
  if (!IsTextToken(token)) return std::to_string(token);
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  const auto at = static_cast<size_t>(token - kFirstTextToken);
  KVCHECK_CHECK(at < table.texts.size(), "a token that nobody named");
  return QuotedName(table.texts[at]);
}

}  // namespace kvcheck
