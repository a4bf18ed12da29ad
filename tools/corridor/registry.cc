#include "tools/corridor/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/cases_file.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/implementations.h"

namespace kvcheck {
namespace {

std::vector<ImplementationRow>& Rows() {
  static std::vector<ImplementationRow> rows = RowsOfThisProgram();
  return rows;
}

bool Fits(const ImplementationRow& row, const std::string& name) {
  return row.parameter.empty() ? name == row.name : name.starts_with(row.name);
}

std::vector<std::string> NamesOf(CaseKind kind) {
  std::vector<std::string> names;
  for (const ImplementationRow& row : Rows()) {
    if (row.Has(kind)) names.push_back(row.Shown());
  }
  return names;
}

// What makes whoever answers cases of the kind; or, of a name that has tensors of other kinds
// alone, whoever answers these: he declines. Null: neither.
const MakeCases* CasesMaker(const ImplementationRow& row, CaseKind kind) {
  const auto* make = std::get_if<MakeCases>(&row.make[kind]);
  for (const Maker& other : row.make.rows) {
    if (make == nullptr) make = std::get_if<MakeCases>(&other);
  }
  return make;
}

// What is asked of the maker of a row.
MakeRequest RequestOf(const ImplementationRow* row, CaseKind kind, const std::string& name,
                      const RemoteLimits& limits) {
  MakeRequest request;
  request.kind = kind;
  request.name = name;
  if (!row->parameter.empty()) request.parameter = name.substr(row->name.size());
  request.limits = limits;
  return request;
}

}  // namespace

const std::vector<ImplementationRow>& ImplementationRows() { return Rows(); }

void RegisterImplementation(ImplementationRow row) {
  const bool is_new = std::none_of(Rows().begin(), Rows().end(), [&](const ImplementationRow& old) {
    return old.name == row.name;
  });
  KVCHECK_CHECK(is_new, "two implementations of one name");
  Rows().push_back(std::move(row));
}

namespace {

// An implementation of one kind, which takes no parameter.
template <typename Make, typename F>
void RegisterOfKind(CaseKind kind, const std::string& name, F make) {
  ImplementationRow row;
  row.name = name;
  row.make[kind] = Make([make = std::move(make)](const MakeRequest&) { return make(); });
  RegisterImplementation(std::move(row));
}

}  // namespace

void RegisterCacheImplementation(const std::string& name,
                                 std::function<std::unique_ptr<CacheFactory>()> make) {
  RegisterOfKind<MakeCaches>(CaseKind::kCache, name, std::move(make));
}

void RegisterPrefixImplementation(const std::string& name,
                                  std::function<std::unique_ptr<PrefixImplementation>()> make) {
  RegisterOfKind<MakePrefixes>(CaseKind::kPrefix, name, std::move(make));
}

bool IsOfThisProgram(const std::string& name) {
  return std::any_of(Rows().begin(), Rows().end(),
                     [&](const ImplementationRow& row) { return Fits(row, name); });
}

const ImplementationRow* FindImplementation(const std::string& name) {
  // A whole name before one that takes a parameter.
  for (const bool whole : {true, false}) {
    for (const ImplementationRow& row : Rows()) {
      if (row.parameter.empty() == whole && Fits(row, name)) return &row;
    }
  }
  static const ImplementationRow kProcess = RowOfProcesses();
  return AdapterCommand(name) ? &kProcess : nullptr;
}

std::string DefaultImplementation(CaseKind kind) {
  for (const ImplementationRow& row : Rows()) {
    if (row.Has(kind)) return row.name;
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("a {} case compares stored tensors: give them with --data FILE#NAME, or "
                          "use kvcheck compare --case",
                          Name(kind)),
              "run");
}

void RefuseImplementation(CaseKind kind, const std::string& name) {
  std::vector<std::string> known = NamesOf(kind);
  const std::string listed = fmt::format("{}", fmt::join(known, ", "));
  for (const std::string& adapter : AdapterNames()) known.push_back(adapter);
  const std::string shown = Shortened(name, kMostNameShown);
  std::string what = fmt::format("'{}' is no implementation of cases of {}", shown, Name(kind));
  if (FindImplementation(name) == nullptr) {
    what = fmt::format("there is no implementation '{}' of cases of {}{}", shown, Name(kind),
                       DidYouMean(name, known));
  } else if (AdapterCommand(name)) {
    what = fmt::format("'{}' has no cases of {}; it has {}", shown, Name(kind),
                       fmt::join(GreetingOf(name).kinds, ", "));
  }
  throw Error(ErrorCode::kUsage, fmt::format("{}; known: {}; {}", what, listed, AdaptersText()),
              "--impl");
}

std::unique_ptr<Implementation> MakeImplementation(CaseKind kind, const std::string& given,
                                                   const Plan& plan, const Profile& profile,
                                                   const RemoteLimits& limits) {
  const std::string name = given.empty() ? DefaultImplementation(kind) : given;
  const ImplementationRow* row = FindImplementation(name);
  const MakeCases* make = row == nullptr ? nullptr : CasesMaker(*row, kind);
  if (make == nullptr) RefuseImplementation(kind, name);
  MakeRequest request = RequestOf(row, kind, name, limits);
  request.plan = plan;
  request.profile = profile;
  return (*make)(request);
}

namespace {

// Made by a row's maker of the type that cases of the kind have.
template <typename Make>
auto MadeFor(CaseKind kind, const std::string& given, const RemoteLimits& limits) {
  const std::string name = given.empty() ? DefaultImplementation(kind) : given;
  const ImplementationRow* row = FindImplementation(name);
  const auto* make = row == nullptr ? nullptr : std::get_if<Make>(&row->make[kind]);
  if (make == nullptr) RefuseImplementation(kind, name);
  return (*make)(RequestOf(row, kind, name, limits));
}

}  // namespace

std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name,
                                               const RemoteLimits& limits) {
  return MadeFor<MakeCaches>(CaseKind::kCache, name, limits);
}

std::unique_ptr<PrefixImplementation> MakePrefixImplementation(const std::string& name,
                                                               const RemoteLimits& limits) {
  return MadeFor<MakePrefixes>(CaseKind::kPrefix, name, limits);
}

const StatedAnswer& StatedBy(CaseKind kind, const std::string& name, const RemoteLimits& limits) {
  static std::mutex mutex;
  static std::map<std::pair<CaseKind, std::string>, StatedAnswer> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({kind, name});
  if (found != known.end()) return found->second;
  const Capabilities capabilities =
      MakeImplementation(kind, name, ParsePlan(kDefaultCasePlan), {}, limits)->GetCapabilities();
  StatedAnswer stated;
  if (capabilities.states_plan) stated.plan = CommandPlan(capabilities.plan);
  if (capabilities.conventions != Conventions::kAsAsked) stated.profile = capabilities.profile;
  return known.emplace(std::pair(kind, name), std::move(stated)).first->second;
}

std::string ImplementationNames(CaseKind kind) {
  return fmt::format("{}", fmt::join(NamesOf(kind), ", "));
}

std::string ImplementationsHelp() {
  std::string text;
  for (const ImplementationRow& row : Rows()) {
    std::vector<std::string_view> kinds;
    for (size_t i = 0; i < kCaseKinds; ++i) {
      if (row.Has(KindAt(i))) kinds.push_back(Name(KindAt(i)));
    }
    text += fmt::format("{} ({}): {}; ", row.Shown(), fmt::join(kinds, ", "), row.help);
  }
  return text + RowOfProcesses().help;
}

}  // namespace kvcheck
