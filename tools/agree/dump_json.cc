// Log-probabilities of a prompt in the JSON of a server's response, one entry per position:
//
//   vLLM     "prompt_logprobs": [null, {"TOKEN": {"logprob": X, ...} or X, ...}, ...]
//   SGLang   "input_top_logprobs": [null, [[X, TOKEN, TEXT], ...], ...]
//
// null is a position of which nothing is said, as the first one. The array is found and cut into
// its entries by hand, so that memory holds one of them; each is then parsed as JSON.
//
// Source: vLLM, vllm/entrypoints/openai (prompt_logprobs); SGLang, meta_info of /generate.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "golden/input_file.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"

namespace kvcheck {
namespace {

using nlohmann::json;

constexpr size_t kBlock = size_t{1} << 16;
// An entry of a position: a vocabulary of 2^20 tokens with 200 bytes each would not fit.
constexpr size_t kMostEntryBytes = size_t{1} << 27;

class JsonLogprobs : public LogitsDump {
 public:
  explicit JsonLogprobs(const std::string& path) : file_(path) { FindArray(); }

  bool Read(TokenDistribution* position) override {
    std::string text;
    while (Entry(&text)) {
      const json entry = json::parse(text, nullptr, false);
      if (entry.is_discarded()) Refuse("an entry is no JSON");
      if (entry.is_null()) continue;
      Take(entry, position);
      ++at_;
      return true;
    }
    file_.ThrowIfChanged();
    return false;
  }

  std::string Description() const override { return "log-probabilities of a prompt, JSON"; }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("position {}: {}", at_, what),
                file_.path());
  }

  // The next byte, or -1 at the end.
  int Next() {
    if (in_block_ == block_.size()) {
      const auto left = static_cast<size_t>(file_.size() - offset_);
      block_.resize(std::min(kBlock, left));
      in_block_ = 0;
      if (block_.empty()) return -1;
      file_.ReadAt(offset_, block_.data(), block_.size());
      offset_ += static_cast<int64_t>(block_.size());
    }
    return static_cast<unsigned char>(block_[in_block_++]);
  }
  int NextToken() {
    int byte = Next();
    while (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n') byte = Next();
    return byte;
  }

  // Leaves the position after the "[" of the array.
  void FindArray() {
    int byte = NextToken();
    if (byte == '[') return;
    // A key cannot occur inside a string: its quotes would be escaped.
    std::string recent;
    for (; byte >= 0; byte = Next()) {
      recent.push_back(static_cast<char>(byte));
      const bool vllm = recent.ends_with("\"prompt_logprobs\"");
      if (vllm || recent.ends_with("\"input_top_logprobs\"")) {
        if (NextToken() == ':' && NextToken() == '[') return;
        Refuse("it has no array of log-probabilities: ask the server for them");
      }
      if (recent.size() > 256) recent.erase(0, 128);
    }
    Refuse("it has neither \"prompt_logprobs\" nor \"input_top_logprobs\"");
  }

  // The text of the next entry; false after the last one.
  bool Entry(std::string* text) {
    text->clear();
    if (ended_) return false;
    int depth = 0;
    bool in_string = false;
    for (int byte = NextToken(); byte >= 0; byte = Next()) {
      if (!in_string && depth == 0 && (byte == ',' || byte == ']')) {
        ended_ = byte == ']';
        // An empty array.
        if (ended_ && text->empty()) return false;
        return true;
      }
      text->push_back(static_cast<char>(byte));
      if (text->size() > kMostEntryBytes) Refuse("an entry is too long");
      if (in_string) {
        if (byte == '\\') {
          const int escaped = Next();
          if (escaped >= 0) text->push_back(static_cast<char>(escaped));
        } else if (byte == '"') {
          in_string = false;
        }
      } else if (byte == '"') {
        in_string = true;
      } else if (byte == '{' || byte == '[') {
        ++depth;
      } else if (byte == '}' || byte == ']') {
        --depth;
      }
    }
    Refuse("it ends within the array");
  }

  int64_t TokenOf(const std::string& text) const {
    int64_t token = -1;
    const char* end = text.data() + text.size();
    if (std::from_chars(text.data(), end, token).ptr != end || token < 0) {
      Refuse(fmt::format("\"{:.40}\" is no token: ask for token ids", text));
    }
    return token;
  }
  double LogP(const json& value) const {
    if (!value.is_number()) Refuse("a log-probability is no number");
    return value.get<double>();
  }

  void Take(const json& entry, TokenDistribution* position) const {
    std::map<int64_t, double> found;
    if (entry.is_object()) {
      for (const auto& [token, value] : entry.items()) {
        found[TokenOf(token)] =
            LogP(value.is_object() && value.contains("logprob") ? value["logprob"] : value);
      }
    } else if (entry.is_array()) {
      for (const json& one : entry) {
        if (!one.is_array() || one.size() < 2 || !one[1].is_number_integer()) {
          Refuse("an entry is no list of [logprob, token, text]");
        }
        found[one[1].get<int64_t>()] = LogP(one[0]);
      }
    } else {
      Refuse("an entry is neither an object nor a list");
    }
    if (found.empty()) Refuse("an entry names no token");
    position->tokens.clear();
    position->log_p.clear();
    for (const auto& [token, log_p] : found) {
      position->tokens.push_back(token);
      position->log_p.push_back(log_p);
    }
    position->complete = false;
    position->error = 0;
    position->floor = -std::numeric_limits<double>::infinity();
    // Which of the tokens is the prompt's own is not said.
    position->next.reset();
  }

  InputFile file_;
  int64_t offset_ = 0;
  std::string block_;
  size_t in_block_ = 0;
  int64_t at_ = 0;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenJsonLogprobs(const std::string& path) {
  return std::make_unique<JsonLogprobs>(path);
}

}  // namespace kvcheck
