#include "tools/agree/logits_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>

#include "golden/input_file.h"
#include "optimized/model/logits_pair.h"
#include "reference/spec/error.h"
#include "tools/agree/distribution_check.h"
#include "tools/agree/safetensors_output.h"

namespace kvcheck {
namespace {

constexpr std::string_view kLlamaMagic = "_logits_";

}  // namespace

std::optional<size_t> TokenDistribution::Find(int64_t token) const {
  if (complete) {
    const bool known = token >= 0 && token < static_cast<int64_t>(size());
    return known ? std::optional<size_t>(static_cast<size_t>(token)) : std::nullopt;
  }
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), token);
  if (found == tokens.end() || *found != token) return std::nullopt;
  return static_cast<size_t>(found - tokens.begin());
}

double TokenDistribution::UnlistedMost() const {
  if (complete) return -std::numeric_limits<double>::infinity();
  // The engine's probabilities sum to at most 1 + sum_error (distribution_check.h).
  const double e = error + rounding;
  const optimized::ProbabilitySum sum = optimized::SumProbabilities(log_p, floor);
  const double rest = 1 + sum_error - sum.above * std::exp(-e);
  return std::min(unlisted, std::log(std::max(0.0, rest)));
}

bool TokenDistribution::ListsTop() const {
  if (complete) return true;
  const double top = *std::max_element(log_p.begin(), log_p.end());
  return top >= unlisted || top - (error + rounding) >= UnlistedMost();
}

double TokenDistribution::MarginRounding(size_t i, size_t j) const {
  const auto of = [&](size_t at) {
    const double stored = std::fabs(log_p[at] + shift);
    return std::isfinite(stored) ? unit * stored + least_unit : 0.0;
  };
  return of(i) + of(j);
}

bool LogitsDump::Read(TokenDistribution* position) {
  if (!Next(position)) return false;
  CheckDistribution(*position, at_, path_);
  ++at_;
  return true;
}

std::unique_ptr<LogitsDump> OpenLogitsDump(const std::string& path) {
  // A name with more than a file in it, which readers of tensors may know; or there is none.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return OpenTensorLogits(path);
  const InputFile file(path);
  std::array<char, 16> head{};
  const auto bytes = static_cast<size_t>(std::min<int64_t>(file.size(), head.size()));
  file.ReadAt(0, head.data(), bytes);
  const std::string_view text(head.data(), bytes);
  if (text.substr(0, kLlamaMagic.size()) == kLlamaMagic) return OpenLlamaBase(path);
  const size_t first = text.find_first_not_of(" \t\r\n");
  // The length of a safetensors header may begin with the byte of a bracket, but no JSON has a NUL.
  const bool is_text = text.find('\0') == std::string_view::npos;
  if (is_text && first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) {
    return OpenJsonLogprobs(path);
  }
  return OpenTensorLogits(path);
}

void WriteTopTokens(LogitsDump* dump, int64_t k, const std::string& path, const Cancel& cancel) {
  std::string ids, logits, lse, next;
  int64_t positions = 0;
  double error = 0;
  TokenDistribution position;
  std::vector<size_t> order;
  while (dump->Read(&position)) {
    cancel();
    if (static_cast<int64_t>(position.size()) < k) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("position {} has {} tokens, and {} are to be kept", positions,
                              position.size(), k),
                  "--top");
    }
    if (!IsFinite(position)) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("position {} has a log-probability that is no number", positions),
                  "--keep");
    }
    order.resize(position.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](size_t a, size_t b) {
      return position.log_p[a] > position.log_p[b] ||
             (position.log_p[a] == position.log_p[b] && a < b);
    });
    // The file will say that no other token is more likely.
    if (!(position.log_p[order[static_cast<size_t>(k) - 1]] >= position.UnlistedMost())) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("position {} does not say which {} tokens are the most likely ones: "
                              "keep fewer, or ask the engine for more",
                              positions, k),
                  "--keep");
    }
    order.resize(static_cast<size_t>(k));
    std::sort(order.begin(), order.end());
    for (const size_t i : order) {
      AppendNumber(static_cast<int32_t>(position.Token(i)), &ids);
      const auto rounded = static_cast<float>(position.log_p[i]);
      error = std::max(error,
                       position.error + position.rounding + std::fabs(rounded - position.log_p[i]));
      AppendNumber(rounded, &logits);
    }
    AppendNumber(0.0F, &lse);
    AppendNumber(static_cast<int32_t>(position.next.value_or(-1)), &next);
    ++positions;
  }
  if (positions == 0) throw Error(ErrorCode::kSelection, "the dump holds no position", "--keep");
  WriteSafetensors(path, {{"error", fmt::format("{}", error)}},
                   std::vector<OutputTensor>{{"lse", "F32", {positions}, lse},
                                             {"next", "I32", {positions}, next},
                                             {"topk_ids", "I32", {positions, k}, ids},
                                             {"topk_logits", "F32", {positions, k}, logits}});
}

}  // namespace kvcheck
