// Log-probabilities of a text in the JSON of a server's response, one entry per position:
//
//   vLLM     "prompt_logprobs": [null, {"TOKEN": {"logprob": X, "rank": R, ...} or X, ...}, ...]
//   SGLang   "input_top_logprobs": [null, [[X, TOKEN, TEXT], ...], ...]
//   OpenAI   "logprobs": {"tokens": [...], "token_logprobs": [null, X, ...],
//                         "top_logprobs": [null, {TEXT: X, ...}, ...]}              completions
//            "logprobs": {"content": [{"token": TEXT, "logprob": X, "bytes": [...],
//                                      "top_logprobs": [...]}, ...]}                chat
//
// null is a position of which nothing is said, as the first one. Several choices of a response, a
// list of responses, or responses line by line are further texts. Where a file has
// log-probabilities of a prompt, those of what was generated behind it ("logprobs") are passed
// over. The arrays of a prompt are found and cut into their entries by hand, so that memory holds
// one of them; each is then parsed as JSON.
//
// Source: vLLM, vllm/entrypoints/openai (prompt_logprobs, rank; a list has the prompt's own token
// first, then the most likely ones); SGLang, meta_info of /generate; OpenAI's API reference,
// completions and chat completions.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "golden/input_file.h"
#include "golden/strict_json.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/token_texts.h"

namespace kvcheck {
namespace {

using nlohmann::json;

enum LogprobsKey : size_t { kVllm, kSglang, kOpenAi, kKeys };
constexpr std::array<std::string_view, kKeys> kKeyNames = {"prompt_logprobs", "input_top_logprobs",
                                                           "logprobs"};
// What is longer is a text and no key.
constexpr size_t kLongestKey = 256;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr size_t kBlock = size_t{1} << 16;
// An entry of a position: a vocabulary of 2^20 tokens with 200 bytes each would not fit. And
// OpenAI's log-probabilities of one text.
constexpr size_t kMostEntryBytes = size_t{1} << 27;
// What vLLM writes for a token whose id was asked for in place of its text.
constexpr std::string_view kTokenId = "token_id:";

// What one entry says, while it is read.
struct SaidEntry {
  std::map<int64_t, double> log_p;
  double unlisted = kNoLimit;
  std::optional<int64_t> next;
};

class JsonLogprobs : public LogitsDump {
 public:
  explicit JsonLogprobs(const std::string& path) : LogitsDump(path), file_(path) {
    is_array_alone_ = IsArrayAlone();
    Rewind();
    if (is_array_alone_) return;
    is_of_prompt_ = IsOfPrompt();
    Rewind();
  }

  std::string Description() const override {
    return is_of_prompt_ ? "log-probabilities of a prompt, JSON" : "OpenAI's logprobs, JSON";
  }

 protected:
  bool Next(TokenDistribution* position) override {
    std::string text;
    while (in_array_ || OpenArray()) {
      if (!is_array_alone_ && !is_of_prompt_) {
        if (at_entry_ == entries_.size()) {
          in_array_ = false;
          ++texts_;
          continue;
        }
        Give(std::move(entries_[at_entry_++]), position);
        return true;
      }
      if (!NextEntry(&text)) {
        in_array_ = false;
        ++texts_;
        continue;
      }
      const json entry = Parsed(text, "an entry");
      if (entry.is_null()) continue;
      Give(Taken(entry), position);
      return true;
    }
    file_.ThrowIfChanged();
    return false;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    // The first look at the whole file counts no positions.
    const std::string first_look = fmt::format("response {}: {}", documents_, what);
    if (!is_counted_) throw Error(ErrorCode::kUnreadableFile, first_look, path());
    // OpenAI's positions of a text are read together: those that were not given yet are before it.
    const int64_t position = at() + std::ssize(entries_) - static_cast<int64_t>(at_entry_);
    throw Error(ErrorCode::kUnreadableFile, fmt::format("position {}: {}", position, what), path());
  }
  json Parsed(const std::string& text, const char* what) const {
    std::optional<std::string> twice;
    json parsed = ParseStrictJson(text, &twice);
    if (!parsed.is_discarded()) return parsed;
    if (!twice) Refuse(fmt::format("{} is no JSON", what));
    Refuse(fmt::format("{} has the key \"{:.40}\" twice: which one is meant is not said", what,
                       *twice));
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
    while (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n') {
      is_new_line_ = is_new_line_ || byte == '\n';
      byte = NextByte();
    }
    return byte;
  }
  void Rewind() {
    offset_ = 0;
    block_.clear();
    in_block_ = 0;
    open_.clear();
    begun_ = is_new_line_ = false;
    documents_ = 0;
  }

  // After its first quote: a string, up to its last one; no more of it than of a key.
  std::string RestOfString() {
    std::string text;
    for (int byte = NextByte(); byte != '"'; byte = NextByte()) {
      if (byte < 0) Refuse("it ends within a string");
      if (text.size() <= kLongestKey) text.push_back(static_cast<char>(byte));
      if (byte == '\\') NextByte();
    }
    return text;
  }
  // Begins a document behind another one: a line of its own.
  void BeginDocument(int byte) {
    if (begun_ && !(is_new_line_ && byte == '{')) Refuse("something follows the end of its JSON");
    if (begun_) EndDocument();
    begun_ = true;
    ++documents_;
    in_document_ = false;
  }
  // A line that has nothing would be a text less, and those behind it would be compared with
  // others.
  void EndDocument() const {
    if (in_document_ || !is_counted_) return;
    Refuse(
        fmt::format("response {} has no log-probabilities: ask the server for them, or leave it "
                    "out of both dumps",
                    documents_));
  }
  // The first byte of the value of the next key of log-probabilities, which *key then is: within
  // the value that is open now, or at any depth at all. -1 at its end.
  int NextValue(bool within, LogprobsKey* key) {
    while (true) {
      const int byte = NextToken();
      if (byte < 0 && !open_.empty()) Refuse("it ends within its JSON");
      if (byte < 0) return -1;
      if (open_.empty()) BeginDocument(byte);
      if (byte == '{' || byte == '[') {
        open_.emplace_back();
      } else if (byte == '}' || byte == ']') {
        if (!open_.empty()) open_.pop_back();
        is_new_line_ = false;
        if (within && open_.empty()) return -1;
      } else if (byte == '"') {
        const std::string name = RestOfString();
        const int colon = NextToken();
        if (colon != ':' || open_.empty()) {
          if (colon >= 0) --in_block_;
          continue;
        }
        if (name.size() <= kLongestKey && !open_.back().insert(name).second) {
          Refuse(fmt::format(
              "an object has the key \"{:.40}\" twice: which one is meant is not said", name));
        }
        const auto found = std::find(kKeyNames.begin(), kKeyNames.end(), name);
        if (found == kKeyNames.end()) continue;
        *key = static_cast<LogprobsKey>(found - kKeyNames.begin());
        return NextToken();
      }
    }
  }
  // An array of positions, not a response or a list of them.
  bool IsArrayAlone() {
    if (NextToken() != '[') return false;
    if (NextToken() != '{') return true;
    // Of the first entry: is it a response?
    open_.emplace_back();
    begun_ = true;
    LogprobsKey key{};
    return NextValue(true, &key) < 0;
  }
  // Whether some text has log-probabilities of a prompt. Where there are neither these nor
  // OpenAI's, reading it will say so.
  bool IsOfPrompt() {
    is_counted_ = false;
    bool has_openai = false;
    LogprobsKey key{};
    for (int byte = NextValue(false, &key); byte >= 0; byte = NextValue(false, &key)) {
      if (key != kOpenAi && byte != 'n') return is_counted_ = true;
      has_openai = has_openai || (key == kOpenAi && (byte == '{' || byte == 'n'));
      --in_block_;
    }
    is_counted_ = true;
    return !has_openai;
  }

  // Leaves the place behind the "[" of the next array, or has the entries of OpenAI's next text;
  // false where there is none any more.
  bool OpenArray() {
    is_first_ = true;
    ended_ = false;
    if (is_array_alone_) {
      if (texts_ == 0) {
        NextToken();
      } else if (NextToken() >= 0) {
        Refuse("something follows its array");
      }
      return in_array_ = texts_ == 0;
    }
    LogprobsKey key{};
    while (true) {
      const int byte = NextValue(false, &key);
      if (byte < 0) break;
      if ((key == kOpenAi) == is_of_prompt_) {
        // Of what was generated behind a prompt, or a prompt of which nothing is said.
        --in_block_;
        continue;
      }
      if (key == kOpenAi && byte != '{' && byte != 'n') {  // of a request: how many
        --in_block_;
        continue;
      }
      in_document_ = true;
      if (byte == 'n') {  // null: nothing is said of a text
        has_null_ = true;
        continue;
      }
      if (key == kOpenAi) {
        ReadOpenAi();
        return in_array_ = true;
      }
      if (byte != '[') Refuse("it has no array of log-probabilities: ask the server for them");
      return in_array_ = true;
    }
    if (texts_ == 0 && has_null_) {
      Refuse("it has no array of log-probabilities: ask the server for them");
    }
    if (texts_ == 0 && documents_ <= 1) {
      Refuse(fmt::format("it has neither \"{}\" nor \"{}\" nor OpenAI's \"{}\"", kKeyNames[kVllm],
                         kKeyNames[kSglang], kKeyNames[kOpenAi]));
    }
    EndDocument();
    return in_array_ = false;
  }

  // Appends the value whose bytes come next, up to the comma or bracket behind it, which is
  // returned; or, where is_open, an object's rest up to its own last bracket.
  int Value(std::string* text, bool is_open) {
    int depth = is_open ? 1 : 0;
    bool in_string = false;
    for (int byte = NextToken(); byte >= 0; byte = NextByte()) {
      if (!in_string && depth == 0 && (byte == ',' || byte == ']')) return byte;
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
        if (is_open && depth == 0) return byte;
      }
    }
    Refuse("it ends within the array");
  }
  // The text of the next entry; false after the last one.
  bool NextEntry(std::string* text) {
    text->clear();
    if (ended_) return false;
    ended_ = Value(text, false) == ']';
    // An empty array.
    if (ended_ && text->empty() && is_first_) return false;
    is_first_ = false;
    return true;
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
  void Add(int64_t token, double log_p, SaidEntry* entry) const {
    if (!entry->log_p.emplace(token, log_p).second) {
      Refuse(fmt::format("an entry names token {} twice", TokenName(token)));
    }
  }

  // Of vLLM, SGLang, or of OpenAI's chat without what is around it.
  SaidEntry Taken(const json& said) const {
    SaidEntry entry;
    if (said.is_object() && said.contains("token") && said.contains("logprob")) {
      return OfChat(said);
    }
    if (said.is_object()) {
      TakeVllm(said, &entry);
    } else if (said.is_array()) {
      for (const json& one : said) {
        if (!one.is_array() || one.size() < 2 || !one[1].is_number_integer()) {
          Refuse("an entry is no list of [logprob, token, text]");
        }
        const auto token = one[1].get<int64_t>();
        if (token < 0) Refuse(fmt::format("{} is no token", one[1].dump()));
        const double log_p = LogP(one[0]);
        Add(token, log_p, &entry);
        // The most likely ones are listed, and no others.
        entry.unlisted = std::min(entry.unlisted, log_p);
      }
    } else {
      Refuse("an entry is neither an object nor a list");
    }
    return entry;
  }
  void TakeVllm(const json& said, SaidEntry* entry) const {
    std::map<int64_t, double> by_rank;
    for (const auto& [name, value] : said.items()) {
      const bool is_object = value.is_object() && value.contains("logprob");
      const double log_p = LogP(is_object ? value["logprob"] : value);
      Add(TokenOf(name), log_p, entry);
      if (is_object && value.contains("rank") && value["rank"].is_number_integer()) {
        by_rank.emplace(value["rank"].get<int64_t>(), log_p);
      }
    }
    // The ranks from 1 on that are all there: what is not listed comes behind them.
    for (int64_t rank = 1; by_rank.count(rank) > 0; ++rank) entry->unlisted = by_rank.at(rank);
  }

  int64_t OpenAiToken(const json& text, const json* bytes) const {
    if (bytes != nullptr && bytes->is_array()) {
      std::string exact;
      for (const json& byte : *bytes) {
        const bool is_byte = byte.is_number_integer() && byte >= 0 && byte <= 255;
        if (!is_byte) Refuse("\"bytes\" of a token are no bytes");
        exact.push_back(static_cast<char>(byte.get<int>()));
      }
      return TextToken(exact);
    }
    if (!text.is_string()) Refuse("a token is no text");
    const auto& name = text.get_ref<const std::string&>();
    if (name.starts_with(kTokenId)) return TokenOf(name.substr(kTokenId.size()));
    return TextToken(name);
  }
  // The token that followed, beside the listed ones: servers list it among them, or in front of
  // them, or not at all. If it is the least of them it may be there for its own sake.
  void AddOwn(int64_t own, double log_p, SaidEntry* entry) const {
    for (const auto& [token, listed] : entry->log_p) {
      if (token != own) entry->unlisted = std::min(entry->unlisted, listed);
    }
    if (entry->log_p.count(own) > 0 && entry->log_p.at(own) != log_p) {
      Refuse(fmt::format("an entry names token {} twice, with {} and {}", TokenName(own), log_p,
                         entry->log_p.at(own)));
    }
    entry->log_p[own] = log_p;
    entry->next = own;
  }
  SaidEntry OfChat(const json& said) const {
    const auto token = [&](const json& one) {
      if (!one.is_object() || !one.contains("token") || !one.contains("logprob")) {
        Refuse("an entry has no \"token\" and \"logprob\"");
      }
      return OpenAiToken(one["token"], one.contains("bytes") ? &one["bytes"] : nullptr);
    };
    SaidEntry entry;
    if (said.is_object() && said.contains("top_logprobs") && said["top_logprobs"].is_array()) {
      for (const json& one : said["top_logprobs"]) {
        const int64_t id = token(one);
        Add(id, LogP(one["logprob"]), &entry);
      }
    }
    const int64_t own = token(said);
    AddOwn(own, LogP(said["logprob"]), &entry);
    return entry;
  }
  // The rest of the object behind "logprobs".
  void ReadOpenAi() {
    std::string text = "{";
    Value(&text, true);
    const json said = Parsed(text, "\"logprobs\"");
    entries_.clear();
    at_entry_ = 0;
    if (said.contains("content")) {
      if (said["content"].is_null()) return;
      if (!said["content"].is_array()) Refuse("\"content\" of \"logprobs\" is no array");
      for (const json& one : said["content"]) entries_.push_back(OfChat(one));
      return;
    }
    const auto array = [&](const char* name) -> const json& {
      if (!said.contains(name) || !said[name].is_array()) {
        Refuse(fmt::format("\"logprobs\" has neither \"content\" nor an array \"{}\"", name));
      }
      return said[name];
    };
    const json& tokens = array("tokens");
    const json& own = array("token_logprobs");
    const bool has_top = said.contains("top_logprobs") && said["top_logprobs"].is_array();
    if (own.size() != tokens.size() || (has_top && said["top_logprobs"].size() != tokens.size())) {
      Refuse("\"tokens\", \"token_logprobs\" and \"top_logprobs\" are of different lengths");
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (own[i].is_null()) continue;
      SaidEntry entry;
      if (has_top && said["top_logprobs"][i].is_object()) {
        for (const auto& [name, log_p] : said["top_logprobs"][i].items()) {
          Add(OpenAiToken(name, nullptr), LogP(log_p), &entry);
        }
      }
      AddOwn(OpenAiToken(tokens[i], nullptr), LogP(own[i]), &entry);
      entries_.push_back(std::move(entry));
    }
  }

  void Give(SaidEntry entry, TokenDistribution* position) const {
    if (entry.log_p.empty()) Refuse("an entry names no token");
    position->tokens.clear();
    position->log_p.clear();
    for (const auto& [token, log_p] : entry.log_p) {
      position->tokens.push_back(token);
      position->log_p.push_back(log_p);
    }
    position->complete = false;
    position->error = 0;
    position->error_is_stated = false;
    // Of a number printed from f32, beside one as large as any of them.
    double largest = 0;
    for (const double log_p : position->log_p) largest = std::max(largest, std::fabs(log_p));
    position->rounding = largest * 0x1p-24;
    // Two logits that differ may print alike: log_softmax in f32 takes off the largest logit, then
    // the log of the sum, and the first difference is no larger than the second.
    position->shift = position->least_unit = 0;
    position->unit = 0x1p-23;
    position->sum_error = kF32SumError;
    position->unlisted = entry.unlisted;
    position->text = texts_;
    position->floor = -kNoLimit;
    // Of a prompt it is not said which of the tokens is its own.
    position->next = entry.next;
  }

  InputFile file_;
  bool is_array_alone_ = false;
  bool is_of_prompt_ = true;  // or of OpenAI
  int64_t offset_ = 0;
  std::string block_;
  size_t in_block_ = 0;
  // Outside of the arrays: brackets that are open, each with the keys that its object has had.
  std::vector<std::set<std::string>> open_;
  bool begun_ = false;
  bool is_new_line_ = false;  // since the last bracket closed
  int64_t documents_ = 0;     // that have begun
  bool in_document_ = false;  // something was said of a text of this one
  bool is_counted_ = true;
  int64_t texts_ = 0;      // arrays that have been read
  bool has_null_ = false;  // of some text nothing is said
  // Of the array that is read now.
  bool in_array_ = false;
  bool is_first_ = true;
  bool ended_ = false;
  std::vector<SaidEntry> entries_;  // of OpenAI
  size_t at_entry_ = 0;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenJsonLogprobs(const std::string& path) {
  return std::make_unique<JsonLogprobs>(path);
}

}  // namespace kvcheck
