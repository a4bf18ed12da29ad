// Causes by which pages of one sequence stand in each other's place: two that are exchanged, or one
// in whose place another is read a second time; K and V, or one of them only. Exchanged pages of
// both matter only where places do: under masks, windows and biases.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

enum class PageOperand { kBoth, kK, kV };

class ExchangedPages {
 public:
  explicit ExchangedPages(Causes* causes) : causes_(*causes), problem_(causes->problem()) {
    std::set<int64_t> batches;
    for (const SeenRow& row : causes->rows()) batches.insert(row.query.batch);
    is_one_batch_ = batches.size() == 1;
  }

  void Run() {
    SumKeys();
    for (const int64_t page : {16, 32, 64, 128, 256}) {
      if (page >= problem_.kv_len) break;
      for (const PageOperand operand : {PageOperand::kBoth, PageOperand::kK, PageOperand::kV}) {
        Find(page, operand, true);
        // causes_of_pages.cc asks of one sequence whether it has the pages of others.
        if (operand != PageOperand::kBoth || !is_one_batch_) Find(page, operand, false);
      }
    }
  }

 private:
  // Adds what a query at key `at` sees where K and V are those of `k` and `v`, times `times`.
  static void AddSeen(const SeenRow& row, int64_t at, int64_t k, int64_t v, double times,
                      Mixture* mixture) {
    const auto from = static_cast<size_t>(k);
    double weight = times * row.weight[from];
    if (weight == 0) return;
    if (!row.bias.empty()) weight *= std::exp(row.bias[static_cast<size_t>(at)] - row.bias[from]);
    const double* values = row.Values(v);
    for (size_t c = 0; c < mixture->sum.size(); ++c) mixture->sum[c] += weight * values[c];
    mixture->share += weight;
  }

  std::optional<Mixture> Predict(const SeenRow& row, int64_t page, PageOperand operand, int64_t a,
                                 int64_t b, bool both_ways) const {
    Mixture mixture = row.Right();
    const int64_t n = problem_.kv_len;
    bool changes = false;
    for (const auto& [to, from] : {std::pair(a, b), std::pair(b, a)}) {
      for (int64_t i = 0; i < page; ++i) {
        const int64_t at = to * page + i, other = from * page + i;
        if (at >= n || other >= n || row.is_visible[static_cast<size_t>(at)] == 0) continue;
        AddSeen(row, at, at, at, -1, &mixture);
        AddSeen(row, at, operand == PageOperand::kV ? at : other,
                operand == PageOperand::kK ? at : other, 1, &mixture);
        changes = true;
      }
      if (!both_ways) break;
    }
    if (!changes) return std::nullopt;
    return mixture;
  }

  // Whether every row sees both pages, and adds nothing to their scores.
  bool SeesAll(int64_t a, int64_t b, int64_t page) const {
    for (const SeenRow& row : causes_.rows()) {
      if (!row.bias.empty()) return false;
      for (const int64_t of : {a, b}) {
        if ((of + 1) * page > problem_.kv_len) return false;
        for (int64_t j = of * page; j < (of + 1) * page; ++j) {
          if (row.is_visible[static_cast<size_t>(j)] == 0) return false;
        }
      }
    }
    return true;
  }

  // Sums over rows of the estimates of keys, of visible ones and of hidden ones.
  void SumKeys() {
    const auto n = static_cast<size_t>(problem_.kv_len);
    for (std::vector<double>* sums : {&a_, &d_, &hidden_a_, &hidden_d_}) sums->assign(n, 0);
    for (size_t r = 0; r < causes_.rows().size(); ++r) {
      const SeenRow& row = causes_.rows()[r];
      const KeySums& sums = causes_.sums()[r];
      for (size_t j = 0; j < n; ++j) {
        const bool is_visible = row.is_visible[j] != 0;
        (is_visible ? a_ : hidden_a_)[j] += sums.a[j];
        (is_visible ? d_ : hidden_d_)[j] += sums.d[j];
      }
    }
  }

  // The pages whose keys seem to have changed most: of visible keys down, of any up.
  std::vector<int64_t> Strongest(int64_t page, double sign, size_t most) const {
    std::vector<std::pair<double, int64_t>> found;
    const int64_t n = problem_.kv_len;
    for (int64_t first = 0; first < n; first += page) {
      double best = 0;
      for (const bool is_hidden : {false, true}) {
        if (is_hidden && sign < 0) continue;
        double along = 0, square = 0;
        for (int64_t j = first; j < std::min(first + page, n); ++j) {
          const auto at = static_cast<size_t>(j);
          along += (is_hidden ? hidden_a_ : a_)[at];
          square += (is_hidden ? hidden_d_ : d_)[at];
        }
        if (square > 0) best = std::max(best, sign * along / std::sqrt(square));
      }
      if (best > 0) found.push_back({best, first / page});
    }
    std::sort(found.begin(), found.end(), std::greater<>());
    std::vector<int64_t> pages;
    for (size_t i = 0; i < std::min(most, found.size()); ++i) pages.push_back(found[i].second);
    return pages;
  }

  void Find(int64_t page, PageOperand operand, bool both_ways) {
    constexpr int64_t kMostProducts = int64_t{1} << 22;
    const int64_t pages = (problem_.kv_len + page - 1) / page;
    std::set<std::pair<int64_t, int64_t>> pairs;
    const std::vector<int64_t> lost = Strongest(page, -1, 6);
    std::vector<int64_t> others = Strongest(page, 1, 6);
    others.insert(others.end(), lost.begin(), lost.end());
    // K of another page leaves no trace of that page's V: all of them may be meant.
    const size_t of_all = both_ways ? 1 : 2;
    for (size_t i = 0; i < lost.size(); ++i) {
      const int64_t a = lost[i];
      const auto add = [&](int64_t b) {
        if (a == b) return;
        pairs.insert(both_ways ? std::pair(std::min(a, b), std::max(a, b)) : std::pair(a, b));
      };
      for (const int64_t b : others) add(b);
      const auto products = problem_.kv_len * static_cast<int64_t>(problem_.channels);
      if (i < of_all && products <= kMostProducts) {
        for (int64_t b = 0; b < pages; ++b) add(b);
      }
    }
    const auto predict = [&](int64_t a, int64_t b) {
      return [=, this](const SeenRow& row, size_t) {
        return Predict(row, page, operand, a, b, both_ways);
      };
    };
    const std::vector<size_t> two(
        problem_.screen.begin(),
        problem_.screen.begin() + std::min<std::ptrdiff_t>(2, std::ssize(problem_.screen)));
    std::vector<std::pair<double, std::pair<int64_t, int64_t>>> tried;
    for (const auto& [a, b] : pairs) {
      tried.push_back({causes_.Misfit(two, predict(a, b)), {a, b}});
    }
    std::sort(tried.begin(), tried.end());
    double least = HUGE_VAL;
    std::pair<int64_t, int64_t> best;
    for (size_t i = 0; i < std::min<size_t>(3, tried.size()); ++i) {
      const auto [a, b] = tried[i].second;
      const double misfit = causes_.Misfit(problem_.screen, predict(a, b));
      if (misfit < least) least = misfit, best = {a, b};
    }
    if (!(least < HUGE_VAL)) return;
    if (!(causes_.Explains(problem_.screen, predict(best.first, best.second)) > 0.5)) return;
    const auto [a, b] = best;
    std::string of = operand == PageOperand::kBoth ? ""
                     : operand == PageOperand::kK  ? "K of "
                                                   : "V of ";
    if (both_ways && operand != PageOperand::kBoth && SeesAll(a, b, page)) {
      // Keys have no place of their own there: to exchange V is to exchange K.
      if (operand == PageOperand::kK) return;
      of = "K or V (not both) of ";
    }
    CauseText what;
    what.name = both_ways ? "pages exchanged" : "page replaced";
    what.text = both_ways
                    ? fmt::format("{}pages {} and {} (pages of {}) are exchanged", of, a, b, page)
                    : fmt::format(
                          "{}page {} (pages of {}: keys {} to {}) is read from page {} of the same "
                          "sequence",
                          of, a, page, a * page, std::min((a + 1) * page, problem_.kv_len) - 1, b);
    what.rank = 3;
    what.choices = 15 * static_cast<double>(pages) * static_cast<double>(pages);
    causes_.Add(std::move(what), predict(a, b));
  }

  Causes& causes_;
  const SeenProblem& problem_;
  bool is_one_batch_ = false;
  std::vector<double> a_, d_, hidden_a_, hidden_d_;  // [T]
};

}  // namespace

void AddCausesOfExchangedPages(Causes* causes) { ExchangedPages(causes).Run(); }

}  // namespace kvcheck
