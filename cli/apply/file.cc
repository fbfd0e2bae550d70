#include "cli/apply/file.h"

#include <algorithm>
#include <functional>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "core/base/label.h"
#include "core/base/name.h"
#include "core/base/nearest.h"
#include "core/base/option_check.h"
#include "gid/prefix.h"
#include "provisioning/kind.h"
#include "provisioning/permission.h"

namespace vrdma::cli::apply {

namespace {

using base::in_quotes;

// Reads the tables of one file and collects its mistakes.
class Reader {
 public:
  explicit Reader(Parsed& parsed) : parsed_(parsed) {}

  void read(const toml::table& root) {
    read_table(root, "the file",
               {{"set", [&](const auto& node) { read_set(node); }},
                {"fabric", [&](const auto& node) { read_named(node, "fabric"); }},
                {"tenant", [&](const auto& node) { read_named(node, "tenant"); }},
                {"parent", [&](const auto& node) { read_named(node, "parent"); }},
                {"vdev", [&](const auto& node) { read_vdevices(node); }}});
  }

 private:
  using Key = std::pair<const char*, std::function<void(const toml::node&)>>;
  using Keys = std::vector<Key>;

  static Line line_of(const toml::node& node) { return node.source().begin.line; }
  void wrong(const toml::node& node, std::string sentence) {
    parsed_.mistakes.push_back({line_of(node), std::move(sentence)});
  }
  void wrong(const toml::key& key, std::string sentence) {
    parsed_.mistakes.push_back({key.source().begin.line, std::move(sentence)});
  }

  // `whose`: in sentences.
  void read_table(const toml::table& table, const std::string& whose, const Keys& keys) {
    for (const auto& [key, node] : table) {
      const auto known =
          std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return key == one.first; });
      if (known != keys.end()) {
        known->second(node);
        continue;
      }
      std::vector<std::string> names;
      for (const auto& one : keys) names.emplace_back(one.first);
      wrong(key, unknown("key", std::string(key.str()), whose, names));
    }
  }
  static std::string unknown(const std::string& what, const std::string& word,
                             const std::string& whose, const std::vector<std::string>& words) {
    std::string sentence = whose + " has no " + what + " " + in_quotes(word);
    if (const auto meant = base::nearest(word, words); !meant.empty())
      return sentence + "; do you mean " + meant + "?";
    sentence += "; there are ";
    for (const auto& one : words) sentence += (&one == words.data() ? "" : ", ") + one;
    return sentence;
  }

  bool read_text(const toml::node& node, const std::string& what, std::string* text) {
    const auto* const string = node.as_string();
    if (string == nullptr || string->get().empty())
      return wrong(node, what + " is a text in quotes, such as \"red\""), false;
    *text = string->get();
    return true;
  }
  void read_name(const toml::node& node, const std::string& what, std::string* name,
                 bool (*valid)(std::string_view) = base::is_name) {
    if (read_text(node, what, name) && !valid(*name))
      wrong(node, what + ": " + in_quotes(*name) + " " + std::string(base::kNameRule));
  }
  void read_set(const toml::node& node) { read_name(node, "set", &parsed_.file.set); }
  void read_word(const toml::node& node, const std::string& what, std::string* word,
                 const std::vector<std::string>& words) {
    if (!read_text(node, what, word)) return;
    if (const auto end = base::one_of(words)(*word); !end.empty()) wrong(node, what + ": " + end);
  }
  // A text for each element.
  void read_list(const toml::node& node, const std::string& what, const char* example,
                 const std::function<void(const toml::node&, const std::string&)>& each) {
    const auto* const array = node.as_array();
    if (array == nullptr) return wrong(node, what + " is a list, such as [\"" + example + "\"]");
    for (const auto& element : *array)
      if (std::string text; read_text(element, "each of " + what, &text)) each(element, text);
  }

  void read_prefixes(const toml::node& node, const std::string& whose, const std::string& key,
                     std::set<std::string>* prefixes) {
    read_list(node, whose + ": " + key, "10.0.0.0/24", [&](const auto& element, const auto& text) {
      const auto prefix = gid::Prefix::parse(text);
      if (!prefix) return wrong(element, whose + ": " + prefix.error().message());
      prefixes->insert(prefix->text());
    });
  }

  // The tables [WHAT.NAME].
  void read_named(const toml::node& node, const std::string& what) {
    const auto* const all = node.as_table();
    if (all == nullptr) return wrong(node, what + " is a table: write [" + what + ".NAME]");
    for (const auto& [key, one] : *all) {
      const std::string name(key.str());
      const auto* const table = one.as_table();
      if (table == nullptr) {
        wrong(key, in_quotes(name) + " is no table: write [" + what + ".NAME]");
        continue;
      }
      const std::string whose = what + " " + in_quotes(name);
      if (what == "fabric")
        read_fabric(*table, key, name, whose);
      else
        read_budget(*table, key, {what == "tenant" ? Scope::kTenant : Scope::kParent, name}, whose);
    }
  }
  // That of a tenant alone has its name with "tenant/".
  static bool is_fabric_name(std::string_view name) {
    constexpr std::string_view kOfTenant = "tenant/";
    if (name.starts_with(kOfTenant)) name.remove_prefix(kOfTenant.size());
    return base::is_group_name(name);
  }
  void read_fabric(const toml::table& table, const toml::key& key, const std::string& name,
                   const std::string& whose) {
    if (!is_fabric_name(name)) wrong(key, whose + " " + std::string(base::kNameRule));
    Fabric fabric;
    read_table(
        table, whose,
        {{"reach",
          [&](const auto& node) {
            read_word(node, whose + ": reach", &fabric.reach, {"host", "network", "wire"});
          }},
         {"peers", [&](const auto& node) { read_prefixes(node, whose, "peers", &fabric.peers); }}});
    parsed_.file.fabrics[name] = {fabric, key.source().begin.line};
  }

  void read_budget(const toml::table& table, const toml::key& key, const BudgetKey& of,
                   const std::string& whose) {
    if (!(of.scope == Scope::kTenant ? base::is_group_name(of.name) : base::is_name(of.name)))
      wrong(key, whose + " " + std::string(base::kNameRule));
    Budget budget;
    const toml::node* defaults = nullptr;
    read_table(table, whose,
               {{"default",
                 [&](const auto& node) {
                   defaults = &node;
                   read_limits(node, whose + ": default", &budget.defaults);
                 }},
                {"ceiling",
                 [&](const auto& node) {
                   read_limits(node, whose + ": ceiling", &budget.ceilings);
                   if (budget.ceilings.contains("bandwidth_min"))
                     wrong(node, whose +
                                     ": quota bandwidth_min has no ceiling; set that of "
                                     "bandwidth");
                   std::erase_if(budget.ceilings, [](const auto& its) {  // "max" is none
                     return its.second == highest(its.first);
                   });
                 }},
                {"overcommit",
                 [&](const auto& node) { read_overcommit(node, whose, &budget.overcommit); }}});
    for (const auto& [kind, limit] : budget.defaults)
      if (const auto most = budget.ceilings.find(kind);
          most != budget.ceilings.end() && limit > most->second &&
          !provisioning::is_dealt(*provisioning::find_kind(kind)))
        wrong(*defaults, whose + ": the default of " + kind + ", " + std::to_string(limit) +
                             ", is above its ceiling, " + std::to_string(most->second));
    parsed_.file.budgets[of] = {budget, key.source().begin.line};
  }
  static uint64_t highest(const std::string& kind) {
    return provisioning::traits(*provisioning::find_kind(kind)).ceiling;
  }
  void read_overcommit(const toml::node& node, const std::string& whose, uint32_t* percent) {
    const auto* const number = node.as_integer();
    if (number == nullptr || number->get() < 100 || number->get() > 100'000)
      return wrong(node, whose + ": overcommit is a number of percent, 100 to 100000");
    *percent = static_cast<uint32_t>(number->get());
  }
  void read_limits(const toml::node& node, const std::string& whose, Limits* limits) {
    const auto* const table = node.as_table();
    if (table == nullptr)
      return wrong(node, whose + " is a table, such as { qp = 64, mr_bytes = \"16g\" }");
    for (const auto& [key, value] : *table) {
      const std::string kind(key.str());
      std::string text;
      if (const auto* const number = value.as_integer())
        text = std::to_string(number->get());
      else if (const auto* const string = value.as_string())
        text = string->get();
      else {
        wrong(value, whose + ": " + in_quotes(kind) + " is a number, or a text such as \"16g\"");
        continue;
      }
      // As on the command line, with the same sentences. A key of TOML may have any characters.
      if (!provisioning::find_kind(kind)) {
        std::vector<std::string> kinds;
        for (const auto one : provisioning::all_kinds())
          kinds.emplace_back(provisioning::traits(one).name);
        wrong(key, unknown("kind", kind, whose, kinds));
        continue;
      }
      if (text.find(',') != std::string::npos) text = "?";
      auto settings = provisioning::parse_settings(kind + "=" + text);
      if (!settings) {
        wrong(value, whose + ": " + settings.error().message());
        continue;
      }
      if (auto ok = provisioning::understand(*settings); !ok) {
        wrong(value, whose + ": " + ok.error().message());
        continue;
      }
      (*limits)[kind] = std::min(settings->front().limit, highest(kind));
    }
  }

  void read_vdevices(const toml::node& node) {
    const auto* const all = node.as_array();
    if (all == nullptr || all->empty())
      return wrong(node, "vdev is a list of tables: write [[vdev]]");
    for (const auto& one : *all) {
      const auto* const table = one.as_table();
      if (table == nullptr) {
        wrong(one, "vdev is a list of tables: write [[vdev]]");
        continue;
      }
      read_vdevice(*table);
    }
  }
  void read_vdevice(const toml::table& table) {
    Vdevice vdevice;
    const auto* const named = table.get_as<std::string>("name");
    const std::string whose = named != nullptr ? "vdev " + in_quotes(named->get()) : "vdev";
    const auto labels = [&](const toml::node& node) { read_labels(node, whose, &vdevice.labels); };
    read_table(
        table, whose,
        {{"name", [&](const auto& node) { read_name(node, whose + ": name", &vdevice.name); }},
         {"netns",
          [&](const auto& node) {
            if (read_text(node, whose + ": netns", &vdevice.netns))
              vdevice.netns = short_netns(vdevice.netns);
          }},
         {"netdev",
          [&](const auto& node) { read_text(node, whose + ": netdev", &vdevice.netdev); }},
         {"parent",
          [&](const auto& node) { read_name(node, whose + ": parent", &vdevice.parent); }},
         {"tenant",
          [&](const auto& node) {
            read_name(node, whose + ": tenant", &vdevice.tenant, base::is_group_name);
          }},
         {"fabric",
          [&](const auto& node) {
            read_name(node, whose + ": fabric", &vdevice.fabric, base::is_group_name);
          }},
         {"quota", [&](const auto& node) { read_limits(node, whose + ": quota", &vdevice.quota); }},
         {"allow",
          [&](const auto& node) {
            read_list(node, whose + ": allow", "raw-packet",
                      [&](const auto& element, const auto& text) {
                        if (const auto known = provisioning::Permissions::of({text}); !known)
                          wrong(element, whose + ": " + known.error().message());
                        vdevice.allow.insert(text);
                      });
          }},
         {"addresses",
          [&](const auto& node) { read_prefixes(node, whose, "addresses", &vdevice.addresses); }},
         {"no_direct",
          [&](const auto& node) {
            const auto* const flag = node.as_boolean();
            if (flag == nullptr) return wrong(node, whose + ": no_direct is true or false");
            vdevice.no_direct = flag->get();
          }},
         {"gid_layout",
          [&](const auto& node) {
            read_word(node, whose + ": gid_layout", &vdevice.gid_layout, {"dense", "mlx5"});
          }},
         {"labels", labels}});
    for (const auto& key : {"name", "netns", "netdev"})
      if (!table.contains(key)) wrong(table, whose + " has no " + key);
    const auto same = std::find_if(
        parsed_.file.vdevices.begin(), parsed_.file.vdevices.end(), [&](const auto& other) {
          return other.value.name == vdevice.name && other.value.netns == vdevice.netns;
        });
    if (same != parsed_.file.vdevices.end() && !vdevice.name.empty() && !vdevice.netns.empty())
      wrong(table, whose + " in netns " + in_quotes(vdevice.netns) + " is in line " +
                       std::to_string(same->line) + " already");
    parsed_.file.vdevices.push_back({vdevice, line_of(table)});
  }
  void read_labels(const toml::node& node, const std::string& whose,
                   std::map<std::string, std::string>* labels) {
    const auto* const table = node.as_table();
    if (table == nullptr)
      return wrong(node, whose + ": labels is a table, such as { team = \"x\" }");
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      const auto* const text = value.as_string();
      if (text == nullptr) {
        wrong(value, whose + ": label " + in_quotes(name) + " is a text in quotes");
        continue;
      }
      if (name == kSetLabel) {
        wrong(key,
              whose + ": the label " + in_quotes(name) + " is apply's own: give the file a set");
        continue;
      }
      if (auto ok = base::check_labels({{name, text->get()}}); !ok)
        wrong(value, whose + ": " + ok.error().message());
      (*labels)[name] = text->get();
    }
    if (labels->size() > base::kMaxLabels)
      wrong(node, whose + ": " + std::to_string(labels->size()) + " labels are too many: at most " +
                      std::to_string(base::kMaxLabels));
  }

  Parsed& parsed_;
};

}  // namespace

Parsed parse(const std::string& text) {
  Parsed parsed;
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    const toml::parse_error& error = result.error();
    parsed.mistakes.push_back(
        {error.source().begin.line, "this is no TOML: " + std::string(error.description())});
    return parsed;
  }
  Reader(parsed).read(result.table());
  std::ranges::stable_sort(parsed.mistakes, {}, &Mistake::line);
  return parsed;
}

std::string short_netns(const std::string& netns) {
  for (const std::string_view directory : {"/run/netns/", "/var/run/netns/"})
    if (netns.starts_with(directory) && netns.find('/', directory.size()) == std::string::npos)
      return netns.substr(directory.size());
  return netns;
}

}  // namespace vrdma::cli::apply
