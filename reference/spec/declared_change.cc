#include "reference/spec/declared_change.h"

#include <algorithm>

namespace kvcheck {

bool DeclaredChange::Contains(const DeclaredChange& part) const {
  return of_profile == part.of_profile &&
         std::all_of(part.words.begin(), part.words.end(), [&](const DeclaredWord& word) {
           return std::any_of(words.begin(), words.end(), [&](const DeclaredWord& own) {
             return own.word == word.word && own.value == word.value;
           });
         });
}

std::string Print(const DeclaredWord& word) { return word.word + "=" + word.value; }

std::string Print(const DeclaredChange& change) {
  std::string text;
  for (const DeclaredWord& word : change.words) {
    text += (text.empty() ? "" : " and ") + Print(word) + " instead of " + word.word + "=" +
            word.former + (word.is_default ? " (the default)" : "");
  }
  return text;
}

std::string PrintValues(const DeclaredChange& change) {
  std::string text;
  for (const DeclaredWord& word : change.words) {
    text += (text.empty() ? "" : " and ") + Print(word);
  }
  return text;
}

std::vector<std::string> Texts(const std::vector<DeclaredChange>& changes) {
  std::vector<std::string> texts;
  for (const DeclaredChange& change : changes) texts.push_back(Print(change));
  return texts;
}

}  // namespace kvcheck
