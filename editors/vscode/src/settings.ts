/** What the settings mean to the extension; most of them are for the language server, which reads them itself. */

/** The settings that the server does not know, by what follows `tenon.`. */
export const OWN = ["path", "preview", "trace"] as const;

/** Why nothing is suggested while typing, where that is so. */
export type Off = "everywhere" | "language";

/** The section `tenon` as the server may see it. */
export function forServer(section: unknown): unknown {
  if (typeof section !== "object" || section === null) {
    return section;
  }
  return Object.fromEntries(Object.entries(section).filter(([name]) => !OWN.some((own) => own === name)));
}

/** The program of the setting `tenon.path`, "" where it is not set, and a sentence about a value that is none. */
export function programOf(value: unknown): { program: string; complaint?: string } {
  if (typeof value === "string") {
    return { program: value.trim() };
  }
  if (value === undefined || value === null) {
    return { program: "" };
  }
  return { program: "", complaint: `"tenon.path" must be a string, not ${JSON.stringify(value)}; it is not used.` };
}

/** Whether suggestions are off, by the settings `tenon.enabled` and `tenon.disabled.languages`. */
export function off(enabled: unknown, disabledLanguages: unknown, language: string | undefined): Off | undefined {
  if (enabled === false) {
    return "everywhere";
  }
  return language !== undefined && texts(disabledLanguages).includes(language) ? "language" : undefined;
}

/** The list of languages with `language` taken out where it is in it, else put in. */
export function toggled(languages: unknown, language: string): string[] {
  const known = texts(languages);
  return known.includes(language) ? known.filter((each) => each !== language) : [...known, language];
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
}
