// What an engine said, position by position, in files that engines write; read one position at a
// time, so that memory does not grow with the file.
//
//   tensors       (safetensors) `logits` (positions, vocabulary), leading axes of extent 1 left
//                 out, or the only tensor of the file; or the most likely tokens alone: `topk_ids`
//                 and `topk_logits` (positions, k), `lse` (positions), the log of the sum of
//                 exponentials over the whole vocabulary. `next` (positions): the tokens that
//                 followed, where known. Metadata `error`: how far a number may be off what the
//                 engine computed.
//   llama.cpp     the file of llama-perplexity --kl-divergence-base: log-probabilities in steps of
//                 a 65535th of each row's range, which is cut 16 below the largest
//                 (tools/perplexity/perplexity.cpp)
//   vLLM          a response with "prompt_logprobs", of each choice one text after the other; or
//                 that array alone
//   SGLang        a response with "input_top_logprobs", or a list of such

#ifndef TOOLS_AGREE_LOGITS_DUMP_H_
#define TOOLS_AGREE_LOGITS_DUMP_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/corridor/cancel.h"

namespace kvcheck {

// Of one position, by ascending token, each at most once.
struct TokenDistribution {
  bool complete = false;         // every token of the vocabulary is there
  std::vector<int64_t> tokens;   // none where it is complete: log_p[i] is of token i
  std::vector<double> log_p;     // nats
  double error = 0;              // of each log_p, as the file stores it
  bool error_is_stated = false;  // error is what the file says of itself, no property of its format
  // Of each log_p beside error: roundings of the types that hold what it is computed from.
  double rounding = 0;
  // The file stores log_p[i] + shift, rounded by at most `unit` of it and `least_unit`: in a
  // difference of two numbers of one position `shift` cancels, and so does its own rounding.
  double shift = 0;
  double unit = 0;
  double least_unit = 0;
  // Relative, of the sum over the vocabulary by which the engine normalized.
  double sum_error = 0;
  // Where the engine's number may be anything from -inf up: a file's smallest number. -inf: none.
  double floor = 0;
  // No token that is not listed has more, as the file's format says (a list of the most likely
  // ones); +inf where it does not say so.
  double unlisted = std::numeric_limits<double>::infinity();
  std::optional<int64_t> next;
  std::optional<int64_t> text;  // number of the text, where the file tells texts apart

  size_t size() const { return log_p.size(); }
  int64_t Token(size_t i) const { return complete ? static_cast<int64_t>(i) : tokens[i]; }
  // Index of a token; nullopt where it is not there.
  std::optional<size_t> Find(int64_t token) const;
  // The most that a token which is not listed can have, in nats; -inf where it is complete.
  // Precondition of both: no number is NaN or +inf.
  double UnlistedMost() const;
  // No token that is not listed can be more likely than all that are.
  bool ListsTop() const;
  // How far log_p[i] - log_p[j] may be off by the types that the file stores, beside 2 error.
  double MarginRounding(size_t i, size_t j) const;
};

class LogitsDump {
 public:
  explicit LogitsDump(std::string path) : path_(std::move(path)) {}
  virtual ~LogitsDump() = default;
  // The next position; false at the end. Errors: kUnreadableFile, also for what is no distribution
  // (distribution_check.h).
  bool Read(TokenDistribution* position);
  // How many there are; nullopt where only reading them tells.
  virtual std::optional<int64_t> Positions() const { return std::nullopt; }
  // The next so many are passed over. Precondition: Positions() says that they are there.
  void Skip(int64_t positions) { at_ += positions; }
  // "llama.cpp base, 128 positions of 32000 tokens"
  virtual std::string Description() const = 0;

 protected:
  // The position at(); false at the end.
  virtual bool Next(TokenDistribution* position) = 0;
  int64_t at() const { return at_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int64_t at_ = 0;
};

// Of a sum over the vocabulary in f32: at most 2^14 additions one after the other, which are 2^18
// tokens in 16 lanes (gamma_n, n u / (1 - n u), u = 2^-24).
inline constexpr double kF32SumError = 0x1p-10 / (1 - 0x1p-10);

// Errors: kUnreadableFile for what is none of these, or damaged; kMissingData for a safetensors
// file without these tensors, or of other extents.
std::unique_ptr<LogitsDump> OpenLogitsDump(const std::string& path);
std::unique_ptr<LogitsDump> OpenTensorLogits(const std::string& path);
std::unique_ptr<LogitsDump> OpenLlamaBase(const std::string& path);
std::unique_ptr<LogitsDump> OpenJsonLogprobs(const std::string& path);

// The k most likely tokens of each position of a dump as a safetensors file of the second kind.
// Errors: as Read; kMissingData for a position of fewer tokens or with NaN or +inf, kSelection for
// a dump of none; kUnreadableFile where it cannot be written; Cancelled, with nothing written.
void WriteTopTokens(LogitsDump* dump, int64_t k, const std::string& path,
                    const Cancel& cancel = {});

}  // namespace kvcheck

#endif  // TOOLS_AGREE_LOGITS_DUMP_H_
