// Causes that move an edge of what a query sees: window, causal mask, padding, tiles.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// By how many keys the edges of what a row sees move: positive is outward.
struct EdgeShift {
  int64_t older = 0;
  int64_t later = 0;
};

std::optional<Mixture> Shifted(const SeenProblem& problem, const SeenRow& row, EdgeShift shift) {
  Mixture mixture = row.Right();
  if (shift.older > 0) {
    AddRange(problem, row, row.first - shift.older, row.first, KeySet::kHidden, 1, &mixture);
  } else if (shift.older < 0) {
    const int64_t to = std::min(row.first - shift.older, row.last);
    AddRange(problem, row, row.first, to, KeySet::kVisible, -1, &mixture);
  }
  if (shift.later > 0) {
    AddRange(problem, row, row.last + 1, row.last + 1 + shift.later, KeySet::kHidden, 1, &mixture);
  } else if (shift.later < 0) {
    const int64_t from = std::max(row.last + 1 + shift.later, row.first + 1);
    AddRange(problem, row, from, row.last + 1, KeySet::kVisible, -1, &mixture);
  }
  if (mixture.share == 1) return std::nullopt;
  return mixture;
}

// The edges of the visible keys, moved by one number of keys in all rows.
class Edges : public std::enable_shared_from_this<Edges> {
 public:
  explicit Edges(Causes* causes) : causes_(*causes), problem_(causes->problem()) {
    for (const SeenRow& row : causes->rows()) {
      most_older_ = std::max(most_older_, row.first);
      most_later_ = std::max(most_later_, problem_.kv_len - 1 - row.last);
      most_seen_ = std::max(most_seen_, row.last - row.first);
      last_varies_ = last_varies_ || row.last != causes->rows()[0].last;
      first_varies_ = first_varies_ || row.first != causes->rows()[0].first;
    }
    for (size_t r = 0; r < causes->rows().size(); ++r) {
      sequences_[causes->rows()[r].query.batch].push_back(r);
    }
  }

  void Run() {
    Search(
        most_older_, [](int64_t n) { return EdgeShift{n, 0}; },
        [this](int64_t n) { return OlderSeen(n); });
    Search(
        most_seen_, [](int64_t n) { return EdgeShift{-n, 0}; },
        [this](int64_t n) { return FirstLost(n); });
    Search(
        most_later_, [](int64_t n) { return EdgeShift{0, n}; },
        [this](int64_t n) { return LaterSeen(n); });
    Search(
        most_seen_, [](int64_t n) { return EdgeShift{0, -n}; },
        [this](int64_t n) { return LastLost(n); });
    if (most_older_ > 0 || most_later_ > 0) {
      Search(
          most_seen_, [](int64_t n) { return EdgeShift{-n, n}; },
          [](int64_t n) { return Moved("later", n); });
      Search(
          most_seen_, [](int64_t n) { return EdgeShift{n, -n}; },
          [](int64_t n) { return Moved("earlier", n); });
    }
    AddTiles();
  }

 private:
  static CauseText Moved(const std::string& to, int64_t n) {
    return {
        "position off",
        fmt::format("what each query sees lies {} too far to the {} keys", CountText(n, "key"), to),
        3};
  }

  bool IsAlignment(int64_t n, CausalAlignment asked) const {
    return causes_.c().mask.causal == asked && n == problem_.kv_len - causes_.c().query_len;
  }

  CauseText OlderSeen(int64_t n) const {
    const MaskSpec& mask = causes_.c().mask;
    const bool all = n >= most_older_;
    if (mask.window && all) return {"window ignored", "the window is not applied", 0};
    if (mask.window) {
      return {n == 1 ? "one older key visible" : "window off",
              fmt::format("the window is {} too long: {} in place of {}", CountText(n, "key"),
                          *mask.window + n, *mask.window),
              1};
    }
    if (n == 1) {
      return {"one older key visible",
              "the key before the first visible one takes part: a window of one key too many, or "
              "padding leaks",
              1};
    }
    if (!mask.left_padding.empty() && all) {
      return {"padding ignored", "left padding takes part", 0};
    }
    return {"older keys visible",
            fmt::format("the {} before the first visible one take part", CountText(n, "key")), 1};
  }

  CauseText FirstLost(int64_t n) const {
    const MaskSpec& mask = causes_.c().mask;
    if (mask.window && *mask.window > n && most_older_ > 0) {
      return {n == 1 ? "first key missing" : "window off",
              fmt::format("the window is {} too short: {} in place of {}", CountText(n, "key"),
                          *mask.window - n, *mask.window),
              1};
    }
    if (n == 1) {
      return {"first key missing",
              "the first visible key is left out: window, padding or sink off by one", 1};
    }
    return {"first keys missing",
            fmt::format("the first {} that a query sees are left out", CountText(n, "key")),
            first_varies_ ? 1 : 3};
  }

  CauseText LaterSeen(int64_t n) const {
    if (IsAlignment(n, CausalAlignment::kTopLeft)) {
      return {"causal alignment", "the causal mask is bottom-right in place of top-left", 0};
    }
    if (causes_.c().mask.causal != CausalAlignment::kNone && n >= most_later_ && n > 1) {
      return {"causal mask ignored", "the causal mask is not applied", 0};
    }
    if (n == 1) {
      return {"next key visible",
              "the key after the last visible one takes part: future or padding leaks", 1};
    }
    return {"later keys visible",
            fmt::format("the {} after the last visible one take part: future or padding leaks",
                        CountText(n, "key")),
            1};
  }

  CauseText LastLost(int64_t n) const {
    if (IsAlignment(n, CausalAlignment::kBottomRight)) {
      return {"causal alignment", "the causal mask is top-left in place of bottom-right", 0};
    }
    if (n == 1) {
      return {"last key missing",
              "the last visible key is left out: causal mask or length off by one", 0};
    }
    return {"last keys missing",
            fmt::format("the last {} that a query sees are left out", CountText(n, "key")),
            last_varies_ ? 1 : 3};
  }

  template <typename Shift, typename Text>
  void Search(int64_t most, const Shift& shift, const Text& text) {
    if (most < 1) return;
    const auto predict = [&](int64_t n) {
      return [this, shift = shift(n)](const SeenRow& row, size_t) {
        return Shifted(problem_, row, shift);
      };
    };
    std::set<int64_t> tried;
    for (int64_t n = 1; n < most; n = n < 64 ? n + 1 : n + n / 5) tried.insert(n);
    tried.insert(most);
    const int64_t alignment = problem_.kv_len - causes_.c().query_len;
    if (alignment > 0 && alignment < most) tried.insert(alignment);
    SearchBySequence(most, tried, predict, text);
    std::vector<std::pair<double, int64_t>> found;
    for (const int64_t n : tried) found.push_back({causes_.Misfit(problem_.screen, predict(n)), n});
    std::sort(found.begin(), found.end());
    const std::vector<size_t> all = causes_.AllRows();
    std::set<int64_t> added;
    for (size_t i = 0; i < std::min<size_t>(2, found.size()); ++i) {
      int64_t n = found[i].second;
      double misfit = causes_.Misfit(all, predict(n));
      for (int64_t by = n < 64 ? 1 : n / 4; by > 0; by /= 2) {
        for (bool moved = true; moved;) {
          moved = false;
          for (const int64_t other : {n - by, n + by}) {
            if (other < 1 || other > most) continue;
            const double misfit_of_other = causes_.Misfit(all, predict(other));
            if (!(misfit_of_other < misfit)) continue;
            n = other, misfit = misfit_of_other, moved = true;
            break;
          }
        }
      }
      if (!added.insert(n).second) continue;
      CauseText what = text(n);
      what.choices = static_cast<double>(most);
      Candidate* candidate = causes_.Add(std::move(what), predict(n));
      if (candidate == nullptr) continue;
      candidate->doubt = [self = shared_from_this(), all, n, most, misfit, shift](double least) {
        int64_t off = 0;
        for (int64_t by = 1; by <= 64; by *= 2) {
          bool is_open = false;
          for (const int64_t other : {n - by, n + by}) {
            if (other < 1 || other > most) continue;
            const auto moved = [&self, of = shift(other)](const SeenRow& row, size_t) {
              return Shifted(self->problem_, row, of);
            };
            is_open = is_open || self->causes_.Misfit(all, moved) - misfit < least;
          }
          if (!is_open) break;
          off = by;
        }
        return off == 0 || n >= most ? ""
                                     : fmt::format(" (known to within {})", CountText(off, "key"));
      };
    }
  }

  // Each sequence of the batch may be off by a number of its own, or not at all: lengths and
  // windows that are kept by sequence.
  template <typename Predict, typename Text>
  void SearchBySequence(int64_t most, const std::set<int64_t>& tried, const Predict& predict,
                        const Text& text) {
    constexpr size_t kMostSequences = 8;
    if (sequences_.size() < 2 || sequences_.size() > kMostSequences) return;
    std::map<int64_t, int64_t> off;
    std::set<int64_t> distinct;
    for (const auto& [sequence, rows] : sequences_) {
      std::vector<size_t> few;
      const size_t count = std::min<size_t>(4, rows.size());
      for (size_t i = 0; i < count; ++i) few.push_back(rows[i * rows.size() / count]);
      int64_t best = 0;
      double least =
          causes_.Misfit(few, [](const SeenRow&, size_t) { return std::optional<Mixture>(); });
      const auto take = [&](const std::vector<size_t>& of, int64_t n) {
        const double misfit = causes_.Misfit(of, predict(n));
        if (!(misfit < least)) return false;
        least = misfit, best = n;
        return true;
      };
      for (const int64_t n : tried) take(few, n);
      if (best > 0) {
        least = causes_.Misfit(rows, predict(best));
        for (int64_t by = best < 64 ? 1 : best / 4; by > 0; by /= 2) {
          bool moved = true;
          while (moved) {
            const int64_t low = best - by, high = best + by;
            moved = (low >= 1 && take(rows, low)) || (high <= most && take(rows, high));
          }
        }
        const double right =
            causes_.Misfit(rows, [](const SeenRow&, size_t) { return std::optional<Mixture>(); });
        if (!(right - least > Causes::kDistinct)) best = 0;
      }
      off[sequence] = best;
      distinct.insert(best);
    }
    if (distinct.size() < 2) return;
    CauseText what;
    const auto with =
        std::count_if(off.begin(), off.end(), [](const auto& of) { return of.second > 0; });
    for (const auto& [sequence, n] : off) {
      if (n == 0) continue;
      const CauseText one = text(n);
      what.name = what.name.empty() || what.name == one.name ? one.name : "edges off";
      what.rank = one.rank;
      what.text += with == 1 ? fmt::format("{} in batch row {}", one.text, sequence)
                             : fmt::format("{}in batch row {} {}", what.text.empty() ? "" : ", ",
                                           sequence, one.text);
    }
    what.choices = std::pow(static_cast<double>(most + 1), static_cast<double>(off.size()));
    causes_.Add(std::move(what), [&](const SeenRow& row, size_t r) -> std::optional<Mixture> {
      const auto found = off.find(row.query.batch);
      if (found == off.end() || found->second == 0) return std::nullopt;
      return predict(found->second)(row, r);
    });
  }

  // Tiles of keys, and of queries, to whose ends a mask is rounded.
  void AddTiles() {
    const bool is_own = first_varies_ || last_varies_;
    for (const int64_t tile : {8, 16, 32, 64, 128, 256}) {
      if (tile > 2 * problem_.kv_len) break;
      const auto add = [&](std::string name, std::string text, const auto& shift_of) {
        causes_.Add(
            {std::move(name), std::move(text), is_own ? 1 : 4, 0, 12},
            [&](const SeenRow& row, size_t) { return Shifted(problem_, row, shift_of(row)); });
      };
      add("tile without its mask",
          fmt::format("the mask is not applied inside the tile of {} keys on the diagonal", tile),
          [&](const SeenRow& row) { return EdgeShift{0, tile - 1 - row.last % tile}; });
      add("tile without its mask",
          fmt::format("queries see the keys of the last query of their tile of {}", tile),
          [&](const SeenRow& row) {
            const int64_t last =
                std::min(causes_.c().query_len, (row.query.query / tile + 1) * tile) - 1;
            return EdgeShift{0, last - row.query.query};
          });
      add("tile without its mask",
          fmt::format("the window is not applied inside its first tile of {} keys", tile),
          [&](const SeenRow& row) { return EdgeShift{row.first % tile, 0}; });
      add("tile left out", fmt::format("the tile of {} keys on the diagonal is left out", tile),
          [&](const SeenRow& row) { return EdgeShift{0, -(row.last % tile + 1)}; });
      add("tile left out", fmt::format("the window's first tile of {} keys is left out", tile),
          [&](const SeenRow& row) {
            return EdgeShift{row.first % tile == 0 ? 0 : row.first % tile - tile, 0};
          });
    }
  }

  Causes& causes_;
  const SeenProblem& problem_;
  int64_t most_older_ = 0, most_later_ = 0, most_seen_ = 0;
  std::map<int64_t, std::vector<size_t>> sequences_;  // rows by batch row
  // Where an edge is the same in all rows, what moves it is a range of keys as well.
  bool first_varies_ = false, last_varies_ = false;
};

}  // namespace

void AddCausesOfEdges(Causes* causes) { std::make_shared<Edges>(causes)->Run(); }

}  // namespace kvcheck
