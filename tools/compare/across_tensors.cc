#include "tools/compare/across_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace kvcheck {
namespace {

constexpr size_t kMostListed = 6;   // longer lists are no pattern
constexpr size_t kMostChoices = 4;  // words named on either side of "never"
constexpr size_t kMostDigits = 9;   // longer numbers are words (hashes, dates)
constexpr size_t kMostSwapWords = 8;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "/layers.12.k" is "/", "layers", ".", "12", ".", "k".
std::vector<std::string> Pieces(const std::string& name) {
  const auto kind = [](char c) { return c == '/' || c == '.' ? 0 : IsDigit(c) ? 1 : 2; };
  std::vector<std::string> pieces;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i > 0 && kind(name[i]) == kind(name[i - 1]) && kind(name[i]) != 0) {
      pieces.back() += name[i];
    } else {
      pieces.emplace_back(1, name[i]);
    }
  }
  return pieces;
}

bool IsNumber(const std::string& piece) {
  return !piece.empty() && IsDigit(piece[0]) && piece.size() <= kMostDigits;
}

bool IsSeparator(const std::string& piece) { return piece == "/" || piece == "."; }

// A word or number of a name, and the place where it stands.
struct Spot {
  std::string place;
  std::string word;
  size_t first;  // in the name
};

std::vector<Spot> SpotsOf(const std::string& name) {
  std::vector<Spot> spots;
  std::string place;
  size_t at = 0;
  for (const std::string& piece : Pieces(name)) {
    if (!IsSeparator(piece)) spots.push_back({place, piece, at});
    place += IsNumber(piece) ? "#" : piece;
    at += piece.size();
  }
  return spots;
}

struct Count {
  int64_t failed = 0;
  int64_t all = 0;
};

// All words of one place.
struct Place {
  std::map<std::string, Count> words;
  int64_t failed = 0;
  bool IsIndex() const {
    return words.size() > 2 && std::all_of(words.begin(), words.end(),
                                           [](const auto& word) { return IsNumber(word.first); });
  }
};

std::map<std::string, Place> PlacesOf(const std::vector<TensorOutcome>& outcomes) {
  std::map<std::string, Place> places;
  for (const TensorOutcome& outcome : outcomes) {
    for (const Spot& spot : SpotsOf(outcome.name)) {
      Place& place = places[spot.place];
      Count& count = place.words[spot.word];
      ++count.all;
      if (!outcome.failed) continue;
      ++count.failed;
      ++place.failed;
    }
  }
  return places;
}

// What an index may be said to count.
constexpr std::array<std::string_view, 12> kCounted = {"batch",  "block", "cache", "chunk",
                                                       "expert", "group", "head",  "layer",
                                                       "page",   "row",   "stage", "step"};

// "layers" after "/model.layers.": the last word of a place, where it ends in one of kCounted;
// else
// "".
std::string LabelOf(const std::string& place) {
  std::string label;
  for (const std::string& piece : Pieces(place)) {
    if (piece == "#") label.clear();
    if (!IsSeparator(piece) && piece != "#") label = piece;
  }
  while (label.ends_with('_') || label.ends_with('-')) label.pop_back();
  const auto is_named = [&label](std::string_view noun) {
    return label.ends_with(noun) || label.ends_with(std::string(noun) + "s");
  };
  return std::any_of(kCounted.begin(), kCounted.end(), is_named) ? label : "";
}

std::string Unnumbered(const std::string& name) {
  std::string text;
  for (const std::string& piece : Pieces(name)) text += IsNumber(piece) ? "#" : piece;
  return text;
}

// " at level 2 of the name 'a.#.b'" of an index that has no label, else "". What differs after it
// is "*".
std::string LevelText(const std::string& place, const std::vector<TensorOutcome>& outcomes) {
  if (!LabelOf(place).empty()) return "";
  const auto separators = std::count_if(place.begin() + (place.starts_with('/') ? 1 : 0),
                                        place.end(), [](char c) { return c == '/' || c == '.'; });
  std::set<std::string> names;
  for (const TensorOutcome& outcome : outcomes) {
    for (const Spot& spot : SpotsOf(outcome.name)) {
      if (spot.place == place) names.insert(Unnumbered(outcome.name));
    }
  }
  std::string name = names.size() == 1 ? *names.begin() : place + "#*";
  if (name.starts_with('/')) name.erase(0, 1);
  return fmt::format(" at level {} of the name '{}'", separators + 1, name);
}

std::string Singular(std::string label) {
  if (label.empty()) return "index";
  if (label.size() > 2 && label.ends_with('s') && !label.ends_with("ss")) label.pop_back();
  return label;
}

std::string PluralOf(const std::string& label) {
  const std::string one = Singular(label);
  return one == "index" ? "indices" : one + "s";
}

std::string Ordinal(int64_t n) {
  if (n == 2) return "second";
  if (n == 3) return "third";
  return fmt::format("{}th", n);
}

// The words that fail, when others of the same place never do.
struct Choice {
  std::vector<std::string> fail;
  std::vector<std::string> pass;
};

// The deepest place where every failing tensor has one of some words, and no tensor with another
// word fails.
std::optional<Choice> FindChoice(const std::map<std::string, Place>& places, int64_t failed) {
  std::optional<Choice> best;
  size_t depth = 0;
  for (const auto& [text, place] : places) {
    if (place.failed != failed || place.IsIndex() || place.words.size() < 2) continue;
    Choice choice;
    for (const auto& [word, count] : place.words) {
      (count.failed > 0 ? choice.fail : choice.pass).push_back(word);
    }
    if (choice.pass.empty() || choice.fail.size() > kMostChoices) continue;
    if (best && text.size() < depth) continue;
    // ".0" says more than "0" where the words are numbers.
    if (IsNumber(choice.fail.front())) {
      const std::string last(1, text.empty() ? '/' : text.back());
      for (auto* words : {&choice.fail, &choice.pass}) {
        for (std::string& word : *words) word.insert(0, IsSeparator(last) ? last : "");
      }
    }
    depth = text.size();
    best = std::move(choice);
  }
  return best;
}

std::string ChoiceText(const Choice& choice) {
  std::string never;
  if (choice.pass.size() <= kMostChoices) {
    never = fmt::format("{}", fmt::join(choice.pass, ", "));
  } else {
    never = fmt::format("any of {} others", choice.pass.size());
  }
  return fmt::format("only {}, never {}", fmt::join(choice.fail, ", "), never);
}

// Which of the numbers of an index fail; nullopt without a pattern. whole: everything of these
// numbers fails.
std::optional<std::string> IndexText(const std::string& label, const std::vector<int64_t>& all,
                                     const std::vector<int64_t>& failing, bool whole) {
  if (failing.size() == all.size() || failing.empty()) return std::nullopt;
  const std::string one = Singular(label);
  const std::string many = PluralOf(label);
  if (failing.size() == 1) return fmt::format("only {} {}", one, failing[0]);
  const auto begin = std::find(all.begin(), all.end(), failing.front());
  const bool run = static_cast<size_t>(all.end() - begin) >= failing.size() &&
                   std::equal(failing.begin(), failing.end(), begin);
  const char* which = whole ? "all" : "only";
  if (run && failing.back() == all.back()) {
    return fmt::format("{} {} from {} on", which, many, failing.front());
  }
  if (run && begin == all.begin()) {
    return fmt::format("{} {} up to {}", which, many, failing.back());
  }
  if (run) return fmt::format("{} {} {} to {}", which, many, failing.front(), failing.back());
  const int64_t step = failing[1] - failing[0];
  bool regular = step > 1 && failing.size() > 2;
  for (size_t i = 2; i < failing.size(); ++i) {
    regular = regular && failing[i] - failing[i - 1] == step;
  }
  if (regular && failing.front() - step < all.front() && failing.back() + step > all.back()) {
    return fmt::format("every {} {}, from {}", Ordinal(step), one, failing.front());
  }
  if (failing.size() <= kMostListed) {
    return fmt::format("only {} {}", many, fmt::join(failing, ", "));
  }
  return std::nullopt;
}

std::string WithWord(const std::string& name, const Spot& spot, const std::string& word) {
  return name.substr(0, spot.first) + word + name.substr(spot.first + spot.word.size());
}

// A guess about which tensor of GOLD each failing tensor of GOT is; pairs (GOLD, GOT).
using Guess = std::vector<std::pair<std::string, std::string>>;

bool Holds(const Guess& guess, const TensorsEqual& looks_equal, const TensorsEqual& are_equal) {
  if (guess.size() < 2) return false;
  for (const TensorsEqual* equal : {&looks_equal, &are_equal}) {
    for (const auto& [gold, got] : guess) {
      if (!(*equal)(gold, got)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> DescribeAcrossTensors(const std::vector<TensorOutcome>& outcomes) {
  int64_t failed = 0;
  for (const TensorOutcome& outcome : outcomes) failed += outcome.failed ? 1 : 0;
  std::vector<std::string> lines;
  if (failed < 2 || failed == static_cast<int64_t>(outcomes.size())) return lines;
  const std::map<std::string, Place> places = PlacesOf(outcomes);
  const std::optional<Choice> choice = FindChoice(places, failed);
  if (choice) lines.push_back(ChoiceText(*choice));

  // Within the chosen words everything of an index may fail.
  const auto is_chosen = [&](const std::string& name) {
    if (!choice) return true;
    for (const Spot& spot : SpotsOf(name)) {
      for (const std::string& word : choice->fail) {
        if (spot.word == word || "." + spot.word == word || "/" + spot.word == word) return true;
      }
    }
    return false;
  };
  std::vector<TensorOutcome> chosen;
  for (const TensorOutcome& outcome : outcomes) {
    if (outcome.failed || is_chosen(outcome.name)) chosen.push_back(outcome);
  }
  const std::map<std::string, Place> chosen_places = PlacesOf(chosen);
  for (const auto& [text, place] : places) {
    if (place.failed != failed || !place.IsIndex()) continue;
    std::vector<int64_t> all;
    std::vector<int64_t> failing;
    bool whole = true;
    for (const auto& [word, count] : place.words) {
      all.push_back(std::stoll(word));
      if (count.failed == 0) continue;
      failing.push_back(all.back());
      const Count& within = chosen_places.at(text).words.at(word);
      whole = whole && within.failed == within.all;
    }
    std::sort(all.begin(), all.end());
    std::sort(failing.begin(), failing.end());
    if (auto line = IndexText(LabelOf(text), all, failing, whole)) {
      lines.push_back(*line + LevelText(text, chosen));
    }
  }
  return lines;
}

std::vector<std::string> DescribeOrder(const std::vector<TensorOutcome>& outcomes,
                                       const TensorsEqual& looks_equal,
                                       const TensorsEqual& are_equal) {
  std::set<std::string> names;
  std::vector<std::string> failing;
  for (const TensorOutcome& outcome : outcomes) {
    names.insert(outcome.name);
    if (outcome.failed) failing.push_back(outcome.name);
  }
  std::vector<std::string> lines;
  if (failing.size() < 2) return lines;
  for (const auto& [text, place] : PlacesOf(outcomes)) {
    if (place.failed != static_cast<int64_t>(failing.size())) continue;
    const auto spot_of = [&place_text = text](const std::string& name) {
      for (const Spot& spot : SpotsOf(name)) {
        if (spot.place == place_text) return spot;
      }
      return Spot();
    };
    if (place.IsIndex()) {
      for (const int64_t distance : {1, -1}) {
        Guess guess;
        bool inside = true;
        for (const std::string& name : failing) {
          const Spot spot = spot_of(name);
          const int64_t partner = std::stoll(spot.word) + distance;
          std::string gold = WithWord(name, spot, fmt::format("{}", partner));
          if (!names.contains(gold) && partner >= 0) {  // layer_07
            gold = WithWord(name, spot, fmt::format("{:0{}}", partner, spot.word.size()));
          }
          if (names.contains(gold)) {
            guess.emplace_back(gold, name);
          } else {
            // Only the end of the index has no partner.
            for (const auto& [word, count] : place.words) {
              inside = inside && (std::stoll(word) - partner) * distance < 0;
            }
          }
        }
        if (!inside || !Holds(guess, looks_equal, are_equal)) continue;
        const std::string one = Singular(LabelOf(text));
        lines.push_back(
            fmt::format("{} i of GOT equals {} i{:+} of GOLD{}, bit for bit ({} tensors)", one, one,
                        distance, LevelText(text, outcomes), guess.size()));
      }
      continue;
    }
    std::vector<std::string> words;
    for (const auto& [word, count] : place.words) {
      if (count.failed > 0) words.push_back(word);
    }
    if (words.size() != 2 || place.words.size() > kMostSwapWords) continue;
    Guess guess;
    for (const std::string& name : failing) {
      const Spot spot = spot_of(name);
      guess.emplace_back(WithWord(name, spot, spot.word == words[0] ? words[1] : words[0]), name);
    }
    const bool known = std::all_of(guess.begin(), guess.end(),
                                   [&](const auto& pair) { return names.contains(pair.first); });
    if (!known || !Holds(guess, looks_equal, are_equal)) continue;
    lines.push_back(fmt::format("{} and {} are swapped, bit for bit ({} tensors)", words[0],
                                words[1], guess.size()));
  }
  return lines;
}

}  // namespace kvcheck
