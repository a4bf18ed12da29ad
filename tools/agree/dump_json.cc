// Log-probabilities of a prompt in the JSON of a server's response, one entry per position:
//
//   vLLM     "prompt_logprobs": [null, {"TOKEN": {"logprob": X, ...} or X, ...}, ...]
//   SGLang   "input_top_logprobs": [null, [[X, TOKEN, TEXT], ...], ...]
//
// null is a position of which nothing is said, as the first one. Several choices of a response, or
// a list of responses, are further texts. The arrays are found and cut into their entries by hand,
// so that memory holds one of them; each is then parsed as JSON.
//
// Source: vLLM, vllm/entrypoints/openai (prompt_logprobs); SGLang, meta_info of /generate.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "golden/input_file.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"

namespace kvcheck {
namespace {

using nlohmann::json;

constexpr std::string_view kVllmKey = "prompt_logprobs";
constexpr std::string_view kSglangKey = "input_top_logprobs";
constexpr size_t kBlock = size_t{1} << 16;
// An entry of a position: a vocabulary of 2^20 tokens with 200 bytes each would not fit.
constexpr size_t kMostEntryBytes = size_t{1} << 27;

class JsonLogprobs : public LogitsDump {
 public:
  explicit JsonLogprobs(const std::string& path) : LogitsDump(path), file_(path) {
    is_array_alone_ = IsArrayAlone();
    Rewind();
  }

  std::string Description() const override { return "log-probabilities of a prompt, JSON"; }

 protected:
  bool Next(TokenDistribution* position) override {
    std::string text;
    while (in_array_ || OpenArray()) {
      if (!Entry(&text)) {
        in_array_ = false;
        ++texts_;
        continue;
      }
      const json entry = json::parse(text, nullptr, false);
      if (entry.is_discarded()) Refuse("an entry is no JSON");
      if (entry.is_null()) continue;
      Take(entry, position);
      return true;
    }
    file_.ThrowIfChanged();
    return false;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("position {}: {}", at(), what), path());
  }

  // The next byte, or -1 at the end.
  int NextByte() {
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
    int byte = NextByte();
    while (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n') byte = NextByte();
    return byte;
  }
  void Rewind() {
    offset_ = 0;
    block_.clear();
    in_block_ = 0;
    depth_ = 0;
  }

  // After its first quote: a string, up to its last one; no more of it than of the longest key.
  std::string RestOfString() {
    std::string text;
    for (int byte = NextByte(); byte != '"'; byte = NextByte()) {
      if (byte < 0) Refuse("it ends within a string");
      if (text.size() <= kSglangKey.size()) text.push_back(static_cast<char>(byte));
      if (byte == '\\') NextByte();
    }
    return text;
  }
  // The byte after the colon of the next key of log-probabilities: within the value that is open
  // now, or at any depth at all. -1 at its end.
  int NextArrayKey(bool within) {
    while (true) {
      const int byte = NextToken();
      if (byte < 0 && depth_ > 0) Refuse("it ends within its JSON");
      if (byte < 0) return -1;
      if (depth_ == 0 && begun_) Refuse("something follows the end of its JSON");
      if (byte == '{' || byte == '[') {
        ++depth_;
        begun_ = true;
      } else if (byte == '}' || byte == ']') {
        --depth_;
        if (within && depth_ == 0) return -1;
      } else if (byte == '"') {
        const std::string key = RestOfString();
        if (key != kVllmKey && key != kSglangKey) continue;
        const int colon = NextToken();
        if (colon == ':') return NextToken();
        if (colon >= 0) --in_block_;
      }
    }
  }
  // An array of positions, not a response or a list of them.
  bool IsArrayAlone() {
    if (NextToken() != '[') return false;
    if (NextToken() != '{') return true;
    // Of the first entry: is it a response?
    depth_ = 1;
    const bool is_response = NextArrayKey(true) >= 0;
    begun_ = false;
    return !is_response;
  }

  // Leaves the place after the "[" of the next array; false where there is none any more.
  bool OpenArray() {
    is_first_ = true;
    if (is_array_alone_) {
      if (texts_ == 0) {
        NextToken();
      } else if (NextToken() >= 0) {
        Refuse("something follows its array");
      }
      in_array_ = texts_ == 0;
    } else {
      int byte = NextArrayKey(false);
      while (byte == 'n') {  // null: nothing is said of a text
        has_null_ = true;
        byte = NextArrayKey(false);
      }
      in_array_ = byte == '[';
      if ((byte >= 0 && !in_array_) || (byte < 0 && texts_ == 0 && has_null_)) {
        Refuse("it has no array of log-probabilities: ask the server for them");
      }
      if (byte < 0 && texts_ == 0) {
        Refuse(fmt::format("it has neither \"{}\" nor \"{}\"", kVllmKey, kSglangKey));
      }
    }
    ended_ = false;
    return in_array_;
  }

  // The text of the next entry; false after the last one.
  bool Entry(std::string* text) {
    text->clear();
    if (ended_) return false;
    int depth = 0;
    bool in_string = false;
    for (int byte = NextToken(); byte >= 0; byte = NextByte()) {
      if (!in_string && depth == 0 && (byte == ',' || byte == ']')) {
        ended_ = byte == ']';
        // An empty array.
        if (ended_ && text->empty() && is_first_) return false;
        is_first_ = false;
        return true;
      }
      text->push_back(static_cast<char>(byte));
      if (text->size() > kMostEntryBytes) Refuse("an entry is too long");
      if (in_string) {
        if (byte == '\\') {
          const int escaped = NextByte();
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
    const auto add = [&](int64_t token, double log_p) {
      if (!found.emplace(token, log_p).second) {
        Refuse(fmt::format("an entry names token {} twice", token));
      }
    };
    if (entry.is_object()) {
      for (const auto& [token, value] : entry.items()) {
        add(TokenOf(token),
            LogP(value.is_object() && value.contains("logprob") ? value["logprob"] : value));
      }
    } else if (entry.is_array()) {
      for (const json& one : entry) {
        if (!one.is_array() || one.size() < 2 || !one[1].is_number_integer()) {
          Refuse("an entry is no list of [logprob, token, text]");
        }
        const auto token = one[1].get<int64_t>();
        if (token < 0) Refuse(fmt::format("{} is no token", one[1].dump()));
        add(token, LogP(one[0]));
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
    // Of a number printed from f32, beside one as large as any of them.
    double largest = 0;
    for (const double log_p : position->log_p) largest = std::max(largest, std::fabs(log_p));
    position->rounding = largest * 0x1p-24;
    position->sum_error = kF32SumError;
    position->text = texts_;
    position->floor = -std::numeric_limits<double>::infinity();
    // Which of the tokens is the prompt's own is not said.
    position->next.reset();
  }

  InputFile file_;
  bool is_array_alone_ = false;
  int64_t offset_ = 0;
  std::string block_;
  size_t in_block_ = 0;
  // Outside of the arrays: brackets that are open, and whether one has been.
  int64_t depth_ = 0;
  bool begun_ = false;
  int64_t texts_ = 0;      // arrays that have been read
  bool has_null_ = false;  // of some text nothing is said
  // Of the array that is read now.
  bool in_array_ = false;
  bool is_first_ = true;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenJsonLogprobs(const std::string& path) {
  return std::make_unique<JsonLogprobs>(path);
}

}  // namespace kvcheck
