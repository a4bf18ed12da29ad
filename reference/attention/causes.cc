#include "reference/attention/causes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "reference/attention/evaluate.h"

namespace kvcheck {
namespace {

constexpr double kNamedGain = Causes::kNamedGain;
constexpr double kDistinct = Causes::kDistinct;
constexpr double kLeftOfExcess = Causes::kLeftOfExcess;
constexpr size_t kShownCauses = 8;

double DistanceOf(const Causes& causes, const Candidate& one, const Candidate& other) {
  const size_t channels = causes.problem().channels;
  double distance = 0;
  for (size_t r = 0; r < causes.rows().size(); ++r) {
    const std::vector<double>& precision = causes.rows()[r].precision;
    for (size_t c = 0; c < channels; ++c) {
      const double off = one.predicted[r * channels + c] - other.predicted[r * channels + c];
      distance += off * precision[c] * off;
    }
  }
  return distance;
}

double MisfitOfControls(const Causes& causes, const Candidate& candidate) {
  const SeenProblem& problem = causes.problem();
  double misfit = 0;
  for (size_t r = problem.counted; r < problem.rows.size(); ++r) {
    misfit +=
        MisfitOf(problem.rows[r],
                 std::span(candidate.predicted).subspan(r * problem.channels, problem.channels));
  }
  return misfit;
}

// "heads 3, 7", "heads 2 to 5"; "": all of them.
std::string SubsetText(const std::string& word, const std::set<int64_t>& of, int64_t extent) {
  if (std::ssize(of) == extent || of.empty()) return "";
  const bool is_run = *of.rbegin() - *of.begin() + 1 == std::ssize(of);
  if (of.size() == 1) return fmt::format("{} {}", word, *of.begin());
  const std::string plural =
      word.ends_with("y") ? word.substr(0, word.size() - 1) + "ies" : word + "s";
  if (is_run) return fmt::format("{} {} to {}", plural, *of.begin(), *of.rbegin());
  if (of.size() > 12) return fmt::format("{} of {} {}", of.size(), extent, plural);
  return fmt::format("{} {}", plural, fmt::join(of, ", "));
}

// Heads, batch rows and queries that are known to have a fault, and known not to have it.
struct Places {
  std::set<int64_t> with, without;

  // "in heads 3, 7"; "": in all, or it cannot be told.
  std::string Text(const std::string& word, int64_t extent) const {
    std::set<int64_t> free;
    std::set_difference(without.begin(), without.end(), with.begin(), with.end(),
                        std::inserter(free, free.begin()));
    if (free.empty()) return "";
    const std::string text = "in " + SubsetText(word, with, extent);
    return std::ssize(with) + std::ssize(free) == extent ? text : text + " at least";
  }
};

// Rows of heads, batch rows and queries of which none fails: whether they have the fault that is
// named of the others, is asked of one row each.
std::vector<int64_t> ControlsOf(const AttentionCase& c, const RowsToExplain& rows) {
  constexpr size_t kMost = 16;
  std::set<int64_t> heads, queries;  // heads of all batch rows
  for (const int64_t row : rows.failing) {
    heads.insert(row / c.query_len);
    queries.insert(row % c.query_len);
  }
  std::vector<int64_t> controls;
  size_t next = 0;
  for (int64_t head = 0; head < c.batch * c.query_heads && controls.size() < kMost; ++head) {
    if (heads.contains(head)) continue;
    controls.push_back(head * c.query_len +
                       rows.failing[next++ % rows.failing.size()] % c.query_len);
  }
  const size_t of_heads = controls.size();
  for (int64_t query = 0; query < c.query_len && controls.size() < of_heads + kMost; ++query) {
    if (queries.contains(query)) continue;
    controls.push_back(rows.failing[next++ % rows.failing.size()] / c.query_len * c.query_len +
                       query);
  }
  return controls;
}

std::string WhereText(const Causes& causes, const Candidate& named, double least,
                      const RowsToExplain& rows) {
  const AttentionCase& c = causes.c();
  Places heads, batches, queries;
  for (const int64_t row : rows.failing) {
    batches.with.insert(row / c.query_len / c.query_heads);
    heads.with.insert(row / c.query_len % c.query_heads);
    queries.with.insert(row % c.query_len);
  }
  const SeenProblem& problem = causes.problem();
  for (size_t r = problem.counted; r < problem.rows.size(); ++r) {
    const SeenRow& row = problem.rows[r];
    const double right = MisfitOf(row, row.o);
    const double wrong =
        MisfitOf(row, std::span(named.predicted).subspan(r * problem.channels, problem.channels));
    const bool has_it = right - wrong > least;
    if (!has_it && !(wrong - right > least)) continue;
    // A row says something of the one of its places that no failing row has.
    const QueryIndex& q = row.query;
    const auto note = [&](Places* places, int64_t at) {
      (has_it ? places->with : places->without).insert(at);
    };
    const bool other_batch = !batches.with.contains(q.batch);
    const bool other_head = !heads.with.contains(q.query_head);
    const bool other_query = !queries.with.contains(q.query);
    if (has_it || other_batch + other_head + other_query == 1) {
      if (other_batch) note(&batches, q.batch);
      if (other_head) note(&heads, q.query_head);
      if (other_query) note(&queries, q.query);
    }
  }
  std::string text;
  for (const std::string& part :
       {heads.Text("head", c.query_heads), batches.Text("batch row", c.batch),
        queries.Text("query", c.query_len)}) {
    if (!part.empty()) text += (text.empty() ? " " : ", ") + part;
  }
  return text;
}

// free: whether the cause takes numbers from the errors beside a first one.
SeenKeys Explain(const SeenProblem& problem, const RowsToExplain& rows, bool* free) {
  *free = false;
  SeenKeys seen;
  DescribeWeights(problem, &seen);
  if (problem.counted == 0) return seen;
  Causes causes(problem);
  AddCausesOfEdges(&causes);
  AddCausesOfRanges(&causes);
  AddCausesOfPairs(&causes);
  AddCausesOfMasks(&causes);
  AddCausesOfNumbers(&causes);
  AddCausesOfHeads(&causes);
  AddCausesOfValues(&causes);
  AddCausesOfStaleRows(&causes);
  AddCausesOfPages(&causes);
  AddCausesOfExchangedPages(&causes);
  AddCausesOfScales(&causes);
  const Candidate* named = NameCause(causes, &seen);
  if (named == nullptr) named = NameStaleRanges(&causes, &seen);
  if (named != nullptr) *free = named->what.numbers > 1;
  if (named != nullptr && problem.rows.size() > problem.counted) {
    const double phi = named->misfit / problem.elements;
    seen.text += WhereText(causes, *named, kDistinct * phi, rows);
  }
  return seen;
}

}  // namespace

std::string CountText(int64_t n, const std::string& one) {
  return n == 1 ? "one " + one : fmt::format("{} {}s", n, one);
}

std::string KeysText(int64_t from, int64_t to, int64_t kv_len) {
  if (to - from == 1) return fmt::format("key {}", from);
  std::string text = fmt::format("keys {} to {}", from, to - 1);
  for (const int64_t page : {256, 128, 64, 32, 16}) {
    if (from % page == 0 && (to == kv_len || to % page == 0) && to - from <= page &&
        kv_len > page) {
      text += fmt::format(" (page {} of {} pages of {})", from / page, (kv_len + page - 1) / page,
                          page);
      break;
    }
  }
  return text;
}

Causes::Causes(const SeenProblem& problem) : problem_(problem) {
  for (const SeenRow& row : problem.rows) sums_.push_back(SumsOf(row));
}

std::vector<size_t> Causes::AllRows() const {
  std::vector<size_t> all(rows().size());
  for (size_t r = 0; r < all.size(); ++r) all[r] = r;
  return all;
}

std::vector<size_t> Causes::FewRows() const {
  constexpr int64_t kMostKeys = 1 << 17;
  const std::vector<size_t>& screen = problem_.screen;
  const auto count =
      static_cast<size_t>(std::clamp<int64_t>(kMostKeys / problem_.kv_len, 2, std::ssize(screen)));
  std::vector<size_t> few;
  for (size_t i = 0; i < std::min(count, screen.size()); ++i) {
    few.push_back(screen[i * screen.size() / std::min(count, screen.size())]);
  }
  return few;
}

Candidate* Causes::Take(Candidate candidate) {
  const size_t channels = problem_.channels;
  bool changes = false;
  for (size_t r = 0; r < rows().size(); ++r) {
    const std::span<const double> predicted =
        std::span(candidate.predicted).subspan(r * channels, channels);
    candidate.misfit += MisfitOf(rows()[r], predicted);
    changes = changes || !std::equal(predicted.begin(), predicted.end(), rows()[r].o.begin());
  }
  if (!changes || !std::isfinite(candidate.misfit)) return nullptr;
  candidates_.push_back(std::move(candidate));
  return &candidates_.back();
}

Mixture Rescore(const SeenProblem& problem, const SeenRow& row, const Rescored& change) {
  const AttentionCase& c = problem.asked.c;
  const auto n = static_cast<size_t>(problem.kv_len);
  const double cap = change.cap.value_or(c.softcap.value_or(0));
  Mixture mixture = {std::vector<double>(problem.channels, 0), 0};
  // The sink keeps its own score, so that its share follows from the same origin.
  const double sink_score = row.sink_weight > 0
                                ? std::log(row.sink_weight * row.denominator) + row.max
                                : -std::numeric_limits<double>::infinity();
  std::vector<double> s(n);
  double max = sink_score;
  for (size_t j = 0; j < n; ++j) {
    if (row.is_visible[j] == 0) continue;
    double x = row.x[j];
    if (change.k != nullptr) {
      const double* k = &(*change.k)[j * static_cast<size_t>(c.k_dim)];
      double dot = 0;
      for (size_t i = 0; i < row.q.size(); ++i) dot += row.q[i] * k[i];
      x = dot * c.scale;
    }
    x *= change.factor;
    s[j] = cap > 0 ? cap * std::tanh(x / cap) : x;
    if (!row.bias.empty()) s[j] += change.bias_times * row.bias[j];
    max = std::max(max, s[j]);
  }
  const std::vector<double>& v = change.v != nullptr ? *change.v : row.head->v.hi;
  for (size_t j = 0; j < n; ++j) {
    if (row.is_visible[j] == 0) continue;
    const double weight = std::exp(s[j] - max);
    if (weight == 0) continue;
    const double* values = &v[j * problem.channels];
    for (size_t channel = 0; channel < problem.channels; ++channel) {
      mixture.sum[channel] += weight * values[channel];
    }
    mixture.share += weight;
  }
  mixture.share += std::exp(sink_score - max);
  return mixture;
}

const Candidate* NameCause(const Causes& causes, SeenKeys* seen) {
  const SeenProblem& problem = causes.problem();
  std::vector<const Candidate*> sorted;
  for (const Candidate& candidate : causes.candidates()) sorted.push_back(&candidate);
  if (sorted.empty()) return nullptr;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Candidate* a, const Candidate* b) {
    return a->Charged() < b->Charged();
  });
  const Candidate& best = *sorted[0];
  const double n = std::max(problem.elements - best.what.numbers, 1.0);
  const double excess = problem.misfit - n;
  const double phi = std::max(best.misfit / n, 0x1p-40);
  const auto explained = [&](const Candidate& candidate) {
    return (problem.misfit - candidate.misfit) / (problem.misfit - std::min(n, best.misfit));
  };
  // Numbers of a cause fit some of the noise too.
  const auto margin = [&](const Candidate& other) {
    double least = (kDistinct + 3 * (best.what.numbers + other.what.numbers)) * phi;
    // Numbers of each row fit more of roundings that are alike than of independent ones: a cause
    // without them that leaves as little is the one that is meant.
    if (best.what.numbers > 1 && other.what.numbers <= 1) {
      least = std::max(least, std::min(4 * std::sqrt(2 * n) * phi, kLeftOfExcess * excess));
    }
    return least;
  };
  // Of causes that say the same of these rows, what they say of the controls decides, then the
  // rank.
  const auto is_better = [&](const Candidate& one, const Candidate& other) {
    // What has numbers of each row says nothing of other rows.
    const bool speaks = std::max(one.what.numbers, other.what.numbers) <= 1 && !one.what.of_rows &&
                        !other.what.of_rows;
    const double controls =
        speaks ? MisfitOfControls(causes, one) - MisfitOfControls(causes, other) : 0;
    if (std::fabs(controls) > kDistinct * phi) return controls < 0;
    return one.what.rank < other.what.rank;
  };
  const Candidate* named = &best;
  const Candidate* rival = nullptr;
  for (size_t i = 1; i < sorted.size(); ++i) {
    const Candidate& other = *sorted[i];
    if (DistanceOf(causes, best, other) < margin(other)) {
      const bool is_as_good = other.Charged() - best.Charged() < margin(other);
      if (is_as_good && is_better(other, *named)) named = &other;
    } else if (rival == nullptr) {
      rival = &other;
    }
  }
  for (const Candidate* candidate : sorted) {
    if (seen->tried.size() == kShownCauses) break;
    seen->tried.push_back(
        {candidate->what.name, candidate->what.text, explained(*candidate), candidate->misfit});
  }
  const bool fits = best.misfit - n <= std::max(kLeftOfExcess * excess, 4 * std::sqrt(2 * n));
  const bool gains = problem.misfit - best.Charged() > kNamedGain * phi;
  const bool is_alone = rival == nullptr || rival->Charged() - best.Charged() > kDistinct * phi;
  if (!fits || !gains || !is_alone) return nullptr;
  seen->cause = named->what.name;
  seen->text = named->what.text;
  if (named->doubt) seen->text += named->doubt(kDistinct * phi);
  seen->explained = explained(*named);
  return named;
}

namespace {

SeenKeys FindCausesOfAll(const AskedRows& asked, const Arithmetic& arithmetic,
                         const RowsToExplain& rows) {
  bool free = false;
  const auto failing = [&] {
    if (rows.failing.empty()) return SeenKeys();
    const std::vector<int64_t> controls = ControlsOf(asked.c, rows);
    return Explain(MakeProblem(asked, arithmetic, rows.failing, controls, rows.read), rows, &free);
  };
  const AttentionCase& c = asked.c;
  const int64_t all = c.batch * c.query_heads * c.query_len;
  // Few rows that fail by themselves say little where all are a little wrong.
  if (rows.others.empty() || std::ssize(rows.failing) >= std::min(all, kMostSeenRows)) {
    return failing();
  }
  SeenKeys of_all =
      Explain(MakeProblem(asked, arithmetic, rows.others, {}, rows.read), rows, &free);
  // Numbers of each row may say that a few rows have what the others have not.
  if (!of_all.cause.empty() && !free) return of_all;
  SeenKeys of_failing = failing();
  if (!of_failing.cause.empty()) return of_failing;
  return of_all.cause.empty() && of_failing.rows > 0 ? of_failing : of_all;
}

// Sequences, or key/value heads, each with a cause of its own. `part` of a row.
template <typename Part>
bool FindCausesByPart(const AskedRows& asked, const Arithmetic& arithmetic,
                      const RowsToExplain& rows, const std::string& word, const Part& part,
                      SeenKeys* seen) {
  constexpr size_t kMostParts = 4;
  std::map<int64_t, std::vector<int64_t>> parts;
  for (const int64_t row : rows.failing) parts[part(row)].push_back(row);
  if (parts.size() < 2 || parts.size() > kMostParts) return false;
  std::string cause, text;
  double explained = 1;
  bool is_free = false;
  std::vector<TriedCause> tried;
  for (const auto& [index, failing] : parts) {
    // A row says too little to have a cause of its own.
    if (failing.size() < 2) return false;
    const size_t most = static_cast<size_t>(kMostSeenRows) / parts.size();
    std::vector<int64_t> some;
    const size_t count = std::min(most, failing.size());
    for (size_t i = 0; i < count; ++i) some.push_back(failing[i * failing.size() / count]);
    bool free = false;
    SeenKeys of_part = Explain(MakeProblem(asked, arithmetic, some, {}, rows.read), rows, &free);
    if (of_part.cause.empty()) return false;
    const bool is_same = cause.empty() || cause == of_part.cause;
    is_free = is_free || !is_same || of_part.has_free_numbers;
    cause = is_same ? of_part.cause : "several causes";
    text += fmt::format("{}in {} {} {}", text.empty() ? "" : "; ", word, index, of_part.text);
    explained = std::min(explained, of_part.explained);
    tried.push_back({of_part.cause, fmt::format("in {} {} {}", word, index, of_part.text),
                     of_part.explained, of_part.tried[0].misfit});
  }
  seen->cause = std::move(cause);
  seen->text = std::move(text);
  seen->explained = explained;
  seen->has_free_numbers = is_free;
  seen->tried.insert(seen->tried.begin(), tried.begin(), tried.end());
  return true;
}

}  // namespace

SeenKeys FindCauses(const AskedRows& asked, const Arithmetic& arithmetic,
                    const RowsToExplain& rows) {
  SeenKeys seen = FindCausesOfAll(asked, arithmetic, rows);
  if (!seen.cause.empty() || seen.rows == 0) return seen;
  // Where one cause explains all, and another does too, it is no different one in each part.
  if (std::any_of(seen.tried.begin(), seen.tried.end(),
                  [](const TriedCause& tried) { return tried.explained >= 1 - kLeftOfExcess; })) {
    return seen;
  }
  const AttentionCase& c = asked.c;
  const int64_t group = c.query_heads / c.kv_heads;
  const auto sequence = [&](int64_t row) { return row / c.query_len / c.query_heads; };
  const auto head = [&](int64_t row) { return row / c.query_len % c.query_heads / group; };
  if (!FindCausesByPart(asked, arithmetic, rows, "batch row", sequence, &seen)) {
    FindCausesByPart(asked, arithmetic, rows, "key/value head", head, &seen);
  }
  return seen;
}

}  // namespace kvcheck
